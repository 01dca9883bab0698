"""The state of a training run, as checkpoints keep it."""

import dataclasses
import math

from t2t_keras.runs.task import OF_ONE_UPDATE, OF_UPDATES, Task
from t2t_keras.training.train_step import FLOAT16_START, LossScale


def _has_type_of(value, initial) -> bool:
    """Whether a value read from JSON has the type of a field's initial value."""
    if isinstance(initial, dict):
        return isinstance(value, dict) and all(_has_type_of(number, 0.0) for number in value.values())
    if isinstance(initial, tuple):
        return isinstance(value, list) and len(value) == len(initial) and all(map(_has_type_of, value, initial))
    if isinstance(initial, bool):
        return type(value) is bool
    if isinstance(initial, int):
        return type(value) is int and 0 <= value < 2**63
    return type(value) in ((int, float) if isinstance(initial, float) else (str,))


@dataclasses.dataclass
class TrainState:
    """What a checkpoint holds besides the weights and the optimizer's variables.

    Attributes:
        step: updates so far, including skipped ones.
        position: where the next update starts in the data, a `batching.Position`.
        seconds: time of training, validation and saving, over all resumes.
        validated_step: step of the last validation.
        dtype: the compute dtype.
        best: score of the best validation: the option `best_metric`, times -1 for the loss.
        best_step: step of the best validation.
        validations_since_best: validations after the best one.
        valid_sentences: number of sentences whose BLEU is compared; 0 if another metric is, or an older version wrote
            the state.
        loss_scale: a `LossScale`.
        target_tokens: target sub-words trained on, without padding.
        flops: operations of the matrix products of all updates, forward and backward, skipped ones excepted; NaN if the
            run began with a version that did not count them.
        skipped: updates that were skipped because they were not finite.
        skipped_in_a_row: skipped updates since the last one that was made.
        damaged_records: records of the data that were damaged and left out.
        measured: sums since the last summary.
        interim: whether the checkpoint is there for resuming only, because the run ended, and the next one replaces it.
        replaces: step of the checkpoint that this one replaces; 0 if it replaces none.
    """

    step: int = 0
    position: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    validated_step: int = 0
    dtype: str = "float32"
    best: float = -math.inf
    best_step: int = 0
    validations_since_best: int = 0
    valid_sentences: int = 0
    loss_scale: tuple[float, float] = LossScale()
    target_tokens: int = 0
    flops: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    damaged_records: int = 0
    measured: dict = dataclasses.field(default_factory=dict)
    interim: bool = False
    replaces: int = 0

    @classmethod
    def read(cls, state: dict) -> "TrainState":
        """Reads the state of a checkpoint. Missing fields have their initial values, `flops` excepted; an unknown
        field, or one of another type, is an error.
        """
        initial = dataclasses.asdict(cls())
        for name, value in state.items():
            if name not in initial or not _has_type_of(value, initial[name]):
                expected = f"a checkpoint's state to have the fields of {cls.__name__} and their types"
                raise ValueError(f"Expected {expected}. Received: {name[:100]}={str(value)[:100]}.")
        uncounted = {"flops": math.nan} if state.get("step") and "flops" not in state else {}
        return cls(**state, **uncounted)

    def set_dtype(self, dtype: str) -> None:
        """Sets the compute dtype. A new run, or one that changes it, starts with the dtype's initial loss scale."""
        if self.step == 0 or self.dtype != dtype:
            self.dtype, self.loss_scale = dtype, FLOAT16_START if dtype == "float16" else LossScale()

    def set_valid_sentences(self, number: int, lines: int) -> bool:
        """Sets the number of sentences whose BLEU is compared, the first of the `lines` of the validation set, and
        returns whether that forgets the best, which is of others.
        """
        before, self.valid_sentences = self.valid_sentences, number
        if forgets := before > 0 and min(before, lines) != min(number, lines) and self.best_step > 0:
            self.best, self.best_step, self.validations_since_best = -math.inf, 0, 0
        return forgets

    def count_update(self, metrics: dict, position: tuple[int, int], damaged: int, seconds: float) -> None:
        """Counts an update that took some seconds, with the metrics of the train step and the damaged records that were
        left out; `position` is where the next update starts in the data.
        """
        self.step, self.position = self.step + 1, position
        self.damaged_records += damaged
        self.target_tokens += int(metrics["target_tokens"])
        self.flops += 3 * metrics["flops"]  # The backward pass has two products for each product of the forward pass.
        counted = {name: value for name, value in metrics.items() if name not in OF_ONE_UPDATE}
        counted |= dict(zip(OF_UPDATES, (1.0, seconds), strict=True))
        if self.measured.keys() != counted.keys():  # None yet, or from a version that measured something else.
            self.measured = dict.fromkeys(counted, 0.0)
        for name, value in counted.items():
            self.measured[name] += value
        if metrics["finite"]:
            self.skipped_in_a_row = 0
        else:
            self.skipped, self.skipped_in_a_row = self.skipped + 1, self.skipped_in_a_row + 1

    def count_validation(self, score: float) -> bool:
        """Counts a validation and returns whether its score is the best so far."""
        self.validated_step = self.step
        # Of several with BLEU 0, as while little is learned, the last one has learned most.
        is_best = score > self.best or score == self.best == 0
        if is_best:
            self.best, self.best_step, self.validations_since_best = score, self.step, 0
        else:
            self.validations_since_best += 1
        return is_best

    def pop_summary(self, metrics: dict, task: Task) -> dict:
        """Returns the scalars for TensorBoard and starts measuring anew.

        They are means since the last summary, except for the learning rate and the gradient norm, which are those of
        `metrics`, the last update's.
        """
        measured, self.measured = self.measured, {}
        tokens, seconds = measured["target_tokens"], max(measured["seconds"], 1e-9)
        of_finite_updates = {}
        if tokens:
            figures = task.measure(measured, training=True)
            of_finite_updates = {f"train/{name}": value for name, value in figures.items()}
            real = measured["real_tokens"] / max(measured["positions"], 1)
            of_finite_updates |= {"utilization/padding_share": 1 - real, "utilization/real_token_share": real}
        return {
            **of_finite_updates,
            "train/learning_rate": metrics["learning_rate"],
            "train/gradient_norm": metrics["gradient_norm"],
            "train/skipped_updates": self.skipped,
            "train/loss_scale": self.loss_scale[0],
            "train/target_tokens_seen": self.target_tokens,
            "train/flops": self.flops,
            "utilization/damaged_records": self.damaged_records,
            "utilization/target_tokens_per_second": tokens / seconds,
            "utilization/updates_per_second": measured["updates"] / seconds,
            "utilization/tflops": 3 * measured["flops"] / seconds / 1e12,
        }
