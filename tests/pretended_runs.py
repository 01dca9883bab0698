"""What stands in for training and scoring the runs of a grid or of Table 3."""

import pathlib
from collections.abc import Callable

from t2t_keras.experiments import grid, series
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.training import run
from t2t_keras.training.interruption import StoppedError
from t2t_keras.training.loop import NotFiniteError
from t2t_keras.training.state import TrainState


class PretendedRuns(list):
    """The names of the runs that were trained, in their order.

    Attributes:
        stop, fail: the name of the run at which training is stopped, and of one that diverges.
        given: (strategy, quiet) of each training.
        scored: (name, checkpoint, options of the search) of each model that was loaded.
        freed: how often the graphs of the runs before were freed.
    """

    stop = fail = None
    freed = 0

    def __init__(self, monkeypatch, evaluate: Callable, name_of: Callable[[pathlib.Path], str], **state: Callable):
        """`state` has functions from the name of a run to fields of its `TrainState`."""
        self.name_of, self.state, self.given, self.scored = name_of, state, [], []
        monkeypatch.setattr(run, "train", self.train)
        monkeypatch.setattr(series.keras.backend, "clear_session", self.free)
        monkeypatch.setattr(grid, "load", self.load)
        monkeypatch.setattr(grid, "evaluate", evaluate)

    def free(self) -> None:
        self.freed += 1

    def train(self, start, *, compared, strategy, quiet, started) -> TrainState:
        """As the real one, it makes no update of a run that has them all."""
        model_dir, options, name = start.folder, start.options, self.name_of(start.folder)
        self.given.append((strategy, quiet))
        if name == self.stop:
            raise StoppedError("Stopped.")
        if name == self.fail:
            raise NotFiniteError("20 updates in a row were not finite.")
        model_dir.mkdir(parents=True, exist_ok=True)
        (model_dir / "some").write_text("")
        SavedRun.write(model_dir, options, model_dir / "some", model_dir / "some")
        self.append(name)
        return TrainState(step=options.train.train_steps, **{key: value(name) for key, value in self.state.items()})

    def load(self, folder: pathlib.Path, checkpoint: str, **search) -> pathlib.Path:
        self.scored.append((self.name_of(folder), checkpoint, search))
        return folder
