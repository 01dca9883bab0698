"""Where a run stands."""

import dataclasses
import math

import tensorflow as tf

from t2t_keras.training.train_step import FLOAT16_START, SUMS, LossScale


def _nothing_measured() -> dict:
    return dict.fromkeys(("updates", "seconds", *SUMS), 0.0)


def _is_like(value, start) -> bool:
    """Whether a value from JSON has the type that a field has at the start."""
    if isinstance(start, dict):
        return isinstance(value, dict) and all(_is_like(number, 0.0) for number in value.values())
    if isinstance(start, tuple):
        return isinstance(value, list) and len(value) == len(start) and all(map(_is_like, value, start))
    if isinstance(start, int):
        return type(value) is int and 0 <= value < 2**63
    return type(value) in ((int, float) if isinstance(start, float) else (str,))


@dataclasses.dataclass
class TrainState:
    """With the weights and the optimizer, all that a checkpoint holds; the rest of a run follows from it and from the options."""

    step: int = 0  # Updates, skipped ones among them.
    position: tuple[int, int] = (0, 0)
    seconds: float = 0.0  # Of training, validation and saving, over all resumes.
    validated_step: int = 0
    dtype: str = "float32"
    best: float = -math.inf
    best_step: int = 0
    validations_since_best: int = 0
    loss_scale: tuple[float, float] = LossScale()
    target_tokens: int = 0  # Trained on, from the first update or the version that counts them.
    skipped: int = 0  # Updates that were not finite.
    skipped_in_a_row: int = 0
    damaged_records: int = 0  # Records of the data that were left out.
    measured: dict = dataclasses.field(default_factory=_nothing_measured)  # Sums since the last point in TensorBoard.

    def __post_init__(self):
        if self.measured.keys() != _nothing_measured().keys():  # An older version measured something else.
            self.measured = _nothing_measured()

    @classmethod
    def read(cls, state: dict) -> "TrainState":
        """The progress in the state of a checkpoint; a field that it lacks is as at the start.

        Raises:
            ValueError: a field is unknown, or not of its type.
        """
        start = dataclasses.asdict(cls())
        for name, value in state.items():
            if name not in start or not _is_like(value, start[name]):
                received = f"{name[:100]}={str(value)[:100]}"
                raise ValueError(
                    f"Expected a checkpoint's state to have the fields of {cls.__name__} and their types. Received: {received}."
                )
        return cls(**state)

    def continue_in(self, dtype: str) -> None:
        """A run that begins, or resumes in another dtype, starts with the loss scale of that dtype."""
        if self.step == 0 or self.dtype != dtype:
            self.dtype, self.loss_scale = dtype, FLOAT16_START if dtype == "float16" else LossScale()

    def count_update(self, metrics: dict, position: tuple[int, int], damaged: int, seconds: float) -> None:
        """Counts one update: what it returned, where in the data it ended, the records left out there, and how long it took."""
        self.step, self.position = self.step + 1, position
        self.damaged_records += damaged
        self.target_tokens += int(metrics["target_tokens"])
        for name in SUMS:
            self.measured[name] += metrics[name]
        self.measured["updates"] += 1
        self.measured["seconds"] += seconds
        if metrics["finite"]:
            self.skipped_in_a_row = 0
        else:
            self.skipped, self.skipped_in_a_row = self.skipped + 1, self.skipped_in_a_row + 1

    def count_validation(self, figure: float) -> bool:
        """Whether a validation is the best so far; keeps count of those that were not."""
        self.validated_step = self.step
        better = figure > self.best
        if better:
            self.best, self.best_step, self.validations_since_best = figure, self.step, 0
        else:
            self.validations_since_best += 1
        return better

    def take_point(self, metrics: dict) -> dict:
        """A point in TensorBoard: means since the last one, and the last update's rate and norm. Measuring begins anew."""
        measured, self.measured = self.measured, _nothing_measured()
        tokens, seconds = measured["target_tokens"], max(measured["seconds"], 1e-9)
        loss = measured["loss"] / max(tokens, 1)
        of_finite_updates = {
            "train/loss": loss,  # The negative log likelihood per sub-word, as valid/loss.
            "train/perplexity": float(tf.exp(loss)),
            "train/smoothed_loss": measured["smoothed_loss"] / max(tokens, 1),
            "data/padding_share": 1 - measured["real_tokens"] / max(measured["positions"], 1),
            "data/real_token_share": measured["real_tokens"] / max(measured["positions"], 1),
        }
        return {
            **(of_finite_updates if tokens else {}),
            "train/learning_rate": metrics["learning_rate"],
            "train/gradient_norm": metrics["gradient_norm"],
            "train/skipped_updates": self.skipped,
            "train/loss_scale": self.loss_scale[0],
            "train/target_tokens_seen": self.target_tokens,
            "data/damaged_records": self.damaged_records,
            "speed/target_tokens_per_second": tokens / seconds,
            "speed/updates_per_second": measured["updates"] / seconds,
        }
