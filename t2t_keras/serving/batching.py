"""A queue in front of a model, in which sentences of several requests wait to be translated together."""

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable

from t2t_keras.serving.client import NoAnswerError, Predict

# Seconds that each further sentence of a request is put back, so that a long list does not hold up single sentences.
PUT_BACK = 0.02
# Sentences share a batch if the longer one has at most twice the characters of the shorter one, and this many more.
MORE_CHARACTERS = 64


class BusyError(Exception):
    """The queue is full, or the time for an answer is over. The same request may succeed later."""


@dataclasses.dataclass(eq=False)
class _Row:
    """A sentence that waits."""

    signature: str
    inputs: dict  # One value each.
    due: float
    length: int = 0  # In characters.
    outputs: concurrent.futures.Future = dataclasses.field(default_factory=concurrent.futures.Future)

    def __post_init__(self):
        self.length = sum(len(value) for value in self.inputs.values() if isinstance(value, str))

    def goes_with(self, other: "_Row") -> bool:
        """Returns whether another sentence may be in the same batch."""
        shorter, longer = sorted((self.length, other.length))
        return self.signature == other.signature and longer <= 2 * shorter + MORE_CHARACTERS


class Batcher:
    """Predicts as a model does, with the sentences of several callers at once.

    Args:
        predict: the model.
        workers: number of batches at the same time.
        max_batch: number of sentences in a batch.
        max_wait: seconds to wait for more sentences while a worker is free.
        max_queue: number of sentences that may wait.
        observe: is called with the size of each batch.
    """

    def __init__(
        self,
        predict: Predict,
        workers: int = 1,
        max_batch: int = 32,
        max_wait: float = 0.005,
        max_queue: int = 1024,
        observe: Callable[[int], None] = lambda size: None,
    ):
        self._predict, self._observe = predict, observe
        self._max_batch, self._max_wait, self._max_queue = max_batch, max_wait, max_queue
        self._rows: list[_Row] = []
        self._changed, self._closed = threading.Condition(), False
        for _ in range(workers):
            threading.Thread(target=self._work, daemon=True).start()

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, signature: str, inputs: dict[str, list], deadline: float) -> dict[str, list]:
        """Returns the outputs for some sentences; see `client.Predict`. Raises `BusyError` if the queue is full, or the
        deadline, as `time.monotonic` counts, is over.
        """
        now = time.monotonic()
        sentences = (dict(zip(inputs, values, strict=True)) for values in zip(*inputs.values(), strict=True))
        rows = [_Row(signature, sentence, now + place * PUT_BACK) for place, sentence in enumerate(sentences)]
        with self._changed:
            # A request of many sentences is taken if nothing else waits.
            if self._rows and len(self._rows) + len(rows) > self._max_queue:
                raise BusyError("Too many sentences wait to be translated. Try again.")
            self._rows += rows
            self._changed.notify_all()
        try:
            outputs = [row.outputs.result(max(deadline - time.monotonic(), 0)) for row in rows]
        except concurrent.futures.TimeoutError as error:
            raise BusyError("The translation took too long. Try again, or send less text at once.") from error
        finally:
            self._remove(rows)
        return {name: [output[name] for output in outputs] for name in outputs[0]}

    def close(self) -> None:
        """Ends the workers after the sentences that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _remove(self, rows: list[_Row]) -> None:
        gone = set(map(id, rows))
        with self._changed:
            self._rows = [row for row in self._rows if id(row) not in gone]

    def _work(self) -> None:
        while rows := self._gathered():
            self._answer(rows)

    def _gathered(self) -> list[_Row]:
        """Waits for sentences and returns those of a batch: the one that is due first, and those nearest in length.

        There are none after the queue was closed.
        """
        with self._changed:
            while not (self._rows and self._is_full()):
                if self._closed and not self._rows:
                    return []
                self._changed.wait()
            first = min(self._rows, key=lambda row: row.due)
            rows = sorted(filter(first.goes_with, self._rows), key=lambda row: abs(row.length - first.length))
            rows = rows[: self._max_batch]
            self._remove(rows)
            return rows

    def _is_full(self) -> bool:
        """Waits for more sentences. Returns whether some are still there; another worker may take them."""
        until = time.monotonic() + self._max_wait
        while 0 < len(self._rows) < self._max_batch and (seconds := until - time.monotonic()) > 0:
            self._changed.wait(seconds)
        return bool(self._rows)

    def _answer(self, rows: list[_Row]) -> None:
        try:
            inputs = {name: [row.inputs[name] for row in rows] for name in rows[0].inputs}
            outputs = self._predict(rows[0].signature, inputs)
            found = [{name: values[place] for name, values in outputs.items()} for place in range(len(rows))]
        except Exception as error:
            if len(rows) > 1 and not isinstance(error, NoAnswerError):  # Perhaps because of one of them.
                for row in rows:
                    self._answer([row])
            else:
                for row in rows:
                    row.outputs.set_exception(error)
            return
        self._observe(len(rows))
        for row, output in zip(rows, found, strict=True):
            row.outputs.set_result(output)
