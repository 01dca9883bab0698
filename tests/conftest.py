"""Virtual CPU devices stand in for GPUs in every test; a run of all files leaves out the medium and slow ones."""

import collections
import functools
import gc
import importlib.util
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# So that a plain `pytest` finds `tools`, and the package where it is not installed.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import keras
import pytest
import tensorflow as tf
import toy
import transformers_models
from logged import logged

from t2t_keras import config
from t2t_keras.model.transformer import Transformer
from t2t_keras.reporting import curves
from t2t_keras.runs import export_folder
from t2t_keras.text import vocabulary, word_pieces
from t2t_keras.training import devices

devices.virtual_cpu_devices(4)
# These make the tests faster: their operations are small, tracing a graph allocates many objects, and a process that
# has run a thousand tests has so many that collecting them takes two seconds.
tf.config.threading.set_intra_op_parallelism_threads(1)
gc.set_threshold(100_000, 50, 50)
keras.backend.clear_session = functools.partial(keras.backend.clear_session, free_memory=False)

TINY = config.ModelConfig(
    vocab_size=40, encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, num_heads=2, d_k=6, d_v=10, dropout=0.1
)


def pytest_configure(config):
    """Without `-m`, chooses the tests: of all files the small ones, of files that are named the medium ones too."""
    if not config.option.markexpr:
        config.option.markexpr = (
            "not slow" if config.args_source == config.ArgsSource.ARGS else "not medium and not slow"
        )


def pytest_terminal_summary(terminalreporter, config):
    """Tells which tests were chosen, and what was skipped and why, by number."""
    terminalreporter.write_line(f'Tests chosen: -m "{config.option.markexpr}"')
    reasons = collections.Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"Skipped {number}: {reason}")


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory) -> Iterator[None]:
    """Removes the temporary files of all programs: AutoGraph and Apache Beam leave some."""
    tmp_path_factory.getbasetemp()  # Stays where it is.
    with (
        tempfile.TemporaryDirectory(prefix="t2t_keras-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def skip_without_tf_text() -> Iterator[None]:
    """Skips what makes or loads an export, or learns word pieces, if TF.Text is not installed, as beside a TensorFlow
    that it has no version for.
    """

    def skip(*args, **options) -> None:
        pytest.skip("TF.Text is not installed")

    check_can_learn = vocabulary.check_can_learn
    with pytest.MonkeyPatch.context() as patch:
        if not importlib.util.find_spec("tensorflow_text"):
            patch.setattr(export_folder, "require_tf_text", skip)
            patch.setattr(word_pieces, "_learn_pieces", skip)
            patch.setattr(
                vocabulary,
                "check_can_learn",
                lambda kind, *given: None if kind == "wordpiece" else check_can_learn(kind, *given),
            )
        yield


@pytest.fixture(scope="session", autouse=True)
def draw_curves() -> Iterator[Callable[[dict], bytes]]:
    """Gives every training run the first picture of curves that is drawn, which saves a sixth of its time."""
    draw, drawn = curves.picture, []

    def picture(runs: dict) -> bytes:
        drawn.extend([] if drawn else [draw(runs)])
        return drawn[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "picture", picture)
        yield draw


@pytest.fixture
def drawn_curves(draw_curves, monkeypatch) -> Callable[[dict], bytes]:
    """Draws the curves of every run. Returns what draws them."""
    monkeypatch.setattr(curves, "picture", draw_curves)
    return draw_curves


@pytest.fixture
def tiny() -> config.ModelConfig:
    """A model of 40 words, its d_k and d_v unlike each other so that a mix-up shows."""
    return TINY


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What the library logs during a test."""
    with logged() as found:
        yield found


@pytest.fixture
def model(tiny) -> Transformer:
    keras.utils.set_random_seed(7)
    return Transformer(tiny)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> pathlib.Path:
    """Shards of the toy's forty pairs."""
    folder = tmp_path_factory.mktemp("shards")
    toy.write_shards(folder)
    return folder


@pytest.fixture(scope="session")
def opus(tmp_path_factory) -> pathlib.Path:
    """A Marian model with the shape of OPUS-MT's, in transformers' format. Tests may copy it."""
    return transformers_models.make(tmp_path_factory.mktemp("marian") / "model")


@pytest.fixture(scope="session")
def nllb(tmp_path_factory) -> pathlib.Path:
    """A small NLLB-200, in transformers' format. Tests may copy it."""
    return transformers_models.make(tmp_path_factory.mktemp("m2m") / "model", "nllb")
