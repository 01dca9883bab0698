"""The interface of a task: what a record holds, the loss of a model on it, and what is measured. Imports neither
TensorFlow nor Keras.

The data, the batches, the train step, the loop, checkpoints and TensorBoard know no task: they ask this interface.
Register an object of it with `registry.register_task`, and the models that are trained for it with
`registry.register_architecture`.
"""

import math
import types
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

# What training measures of every task, beside its own sums: sums over an update, sums over several updates, and what is
# of one update.
SUMS = ("target_tokens", "real_tokens", "positions", "flops")
OF_UPDATES = ("updates", "seconds")
OF_ONE_UPDATE = ("gradient_norm", "learning_rate", "finite", "weight_gradient_norms")


class Column(NamedTuple):
    """A column of a record: a sequence of one positive integer or more. Batches are padded with zeros. The lengths of
    the counted columns, in their order, are the arguments of `SequenceModel.flops` and `memory_cost`.
    """

    name: str  # A word in lower case.
    counted: bool = True  # Whether its length counts against the budgets of tokens and `max_length`.
    is_text: bool = True  # Whether its integers are ids of sub-words, which messages show as text.


class Metric(NamedTuple):
    """A number that training or validation measures, as a curve in TensorBoard."""

    name: str  # Of the curves "train/NAME" and "valid/NAME".
    title: str  # Of the chart that shows both, and in the HPARAMS tab; empty for a curve without a chart.
    train: str = ""  # Describes the curve in training; empty if there is none.
    valid: str = ""  # Describes the curve in validation; empty if there is none.
    translates: bool = False  # Whether it is measured on translations of the first `valid_sentences`.


class Renewal(NamedTuple):
    """Changes records anew each epoch, in the graph of the data pipeline; see `Task.renewal`.

    Attributes:
        columns: names of the columns that it returns.
        change: (records, seed) → records. Records are [N, (length)] int32, ragged, by name of the column: those of
            `Task.stored` become as many rows of `columns`, some thousands at a time. A seed is [2] int64, for
            TensorFlow's stateless random operations: a function of the seed of the run, the epoch, and the place of the
            records in it.
        longest: length of the first column → about the largest length, by name, of each column that is not counted and
            not as long. Memory is planned with them.
        most: length that counted columns may grow to; 0 if they do not grow.
    """

    columns: tuple[str, ...]
    change: Callable
    longest: Callable[[int], dict[str, int]] = lambda length: {}
    most: int = 0


LOSS = Metric(
    "loss",
    "Loss",
    train="Mean negative log likelihood per target token, in nats, since the last point. Compares with valid/loss.",
    valid="Mean negative log likelihood per target token of the validation set, in nats.",
)


class Task:
    """Base class of tasks.

    Attributes:
        name: that under which it is registered; `registry.task` sets it.
        texts: the text that a record is made of: ("source", "target"), or ("source",) for text without a second side.
        columns: the columns of a batch.
        stored: the columns of a record on disk, if they differ from those of a batch; the counted ones must not differ.
            `renewal` makes the columns of a batch from them.
        target: the column whose tokens the loss is a sum over.
        unit: what one of these tokens is, in messages.
        documents: whether a blank line of the text ends a document: `records` gets it as an empty line, and the last
            column of a record is a number for its document.
        plain_text: whether the text has neither tags nor text to keep, and UNK stands for none of it.
        separate_subwords: whether the source may have sub-words of its own, which `records` then takes from
            `tokenizer.source`.
        generates: whether its models write text: it uses the options of the search, of validation BLEU and of pictures
            of attention.
        augments: whether `renewal` follows the options `bpe_dropout` and `augment`.
        sums: names of what `loss` returns.
        objective: the one of `sums` that training minimises.
        metrics: what `measure` and `validation` return.
        defaults: of options of training, where they differ from those of `TrainConfig`.
        best_metrics: metrics of validation that the option `best_metric` may name, the default first. "loss" is best
            when lowest, others when highest.
    """

    name: str = ""
    texts: tuple[str, ...] = ("source", "target")
    columns: tuple[Column, ...]
    stored: tuple[Column, ...] = ()
    target: str = "target"
    unit: str = "target token"
    documents: bool = False
    plain_text: bool = False
    separate_subwords: bool = False
    generates: bool = False
    augments: bool = False
    sums: tuple[str, ...] = ("loss",)
    objective: str = "loss"
    metrics: tuple[Metric, ...] = (LOSS,)
    best_metrics: tuple[str, ...] = ("loss",)
    defaults: Mapping[str, object] = types.MappingProxyType({})

    def translates(self, metric: str) -> bool:
        """Whether a metric is measured on translations, by its name."""
        return any(each.translates for each in self.metrics if each.name == metric)

    @property
    def line_noun(self) -> str:
        """What messages call a line of the text."""
        return "pair" if len(self.texts) > 1 else "line"

    @property
    def counted(self) -> dict[str, bool]:
        """Whether each column is counted, by its name."""
        return {column.name: column.counted for column in self.columns}

    @property
    def on_disk(self) -> dict[str, bool]:
        """Whether each column of a record on disk is counted, by its name."""
        return {column.name: column.counted for column in self.stored or self.columns}

    def records(self, tokenizer, *texts: list[bytes], **limits: int) -> Iterable[tuple]:
        """Makes records of text, lines of each of `self.texts`, with `Subwords`. With `documents`, `limits` has the
        option `max_length`; otherwise none.

        Returns for each line a tuple with an integer array for each of `self.stored` or, without these, `self.columns`.
        With `documents`, any number of them.
        """
        raise NotImplementedError

    def sentences(self, line: bytes) -> tuple[bytes, ...]:
        """Returns the sentences of a line of text, which sub-words are learned from."""
        return (line,)

    def check_documents(self, numbers: set[int], name: str) -> None:
        """Raises `ValueError` if a text, with `documents`, has records of fewer than two documents. `numbers` are the
        numbers of its documents, and `name` is its name in the message.
        """
        if len(numbers) < 2:
            received = "one such document" if numbers else "no document has two sentences"
            expected = "two different documents of two sentences or more, with a blank line between them"
            raise ValueError(f"Expected {expected}, in {name}. Received: {received}.")

    def renewal(self, tokenizer, options, training: bool) -> Renewal | None:
        """Returns what changes records anew each epoch, such as random masks or another segmentation; `None`, as here,
        changes none.

        A resumed run and one on more devices get the same records, because these are changed before they are cut into
        batches. Each row must keep one integer or more, all at least 1. Batches and memory are planned for the longest
        row on disk: no counted column should become longer.

        Args:
            tokenizer: the `Subwords`.
            options: the `run_options.Options` of the run.
            training: whether the records are those of the training set. Those of the validation set get the same seeds
                at every validation.
        """
        return None

    def loss(self, model, batch: dict, *, label_smoothing: float, training: bool) -> dict:
        """Computes the loss of a model on a micro-batch, [B, T] int32 for each of `self.columns`. Returns `self.sums`:
        sums over the micro-batch, each [] float32. Only the objective needs a gradient.

        `label_smoothing` is ε of section 5.4; 0 in validation. In `training`, there is dropout.
        """
        raise NotImplementedError

    def measure(self, sums: dict[str, float], training: bool) -> dict[str, float]:
        """Computes metrics from sums over an interval of training or over the validation set: `self.sums`, and
        "target_tokens", the number of tokens of `self.target`, above 0. Returns values by name of the metric, "loss"
        among them.
        """
        return {"loss": sums["loss"] / sums["target_tokens"]}

    def validation(self, model, tokenizer, options, texts: tuple[list[str], ...]) -> Callable[[], dict]:
        """Returns a function that measures the current weights of a model in training on the text of the validation
        set, lines of each of `self.texts`; only the chief calls it. `tokenizer` and `options` are those of `renewal`.

        It returns values by name: numbers become curves, strings text, and uint8 arrays [images, height, width, 3]
        images of TensorBoard.
        """
        return lambda: {}

    def check_text(self, data) -> None:
        """Raises `ValueError` if `DataConfig` lacks a side of the text that the task needs, has one too many, or an
        option without effect in the task.
        """
        own = {name: getattr(data, name) for name in ("source_tag", "keep_patterns", "subwords")}
        if self.plain_text and (
            given := {name: value for name, value in own.items() if value not in ("", "bpe", "wordpiece", "word")}
        ):
            expected = "`subwords=bpe`, `wordpiece` or `word`, and neither `source_tag` nor `keep_patterns`"
            received = ", ".join(f"{name}={value}" for name, value in given.items())
            raise ValueError(f"Expected {expected}, for the task {self.name}. Received: {received}.")
        for split in ("train", "valid"):
            given = [
                side
                for side in ("source", "target")
                if getattr(data, f"{split}_{side}") or side in self.texts and data.text(split, side)
            ]
            missing = [f"`{split}_{side}`" for side in self.texts if side not in given]
            if given and missing and set(given) < set(self.texts):
                raise ValueError(f"Give {' and '.join(missing)} too: the task {self.name} needs both sides.")
            if given and tuple(given) != self.texts:
                expected = " and ".join(f"`{split}_{side}`" for side in self.texts)
                received = ", ".join(f"{split}_{side}={getattr(data, f'{split}_{side}')}" for side in given)
                raise ValueError(f"Expected {expected}, or none, for the task {self.name}. Received: {received}.")


def perplexity(loss: float) -> float:
    """Returns e to the power of a mean loss in nats; infinity if it overflows, and NaN of NaN."""
    return math.inf if loss > 709 else math.exp(loss)
