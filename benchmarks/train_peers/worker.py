"""The process of one contestant of `benchmarks/train.py`: builds its model, then makes updates when asked.

Standard input has one request per line: the indices of the updates to make, as a JSON list. Each answer is one line of
JSON on standard output: {"seconds": …, "peak_bytes": …, …}, where the rest is what the contestant returns, such as
{"losses": […]}.
"""

import importlib
import json
import os
import pathlib
import sys
import time

from t2t_keras.system.machine import peak_memory


def read_updates(task: dict) -> list[list[tuple]]:
    """Returns the micro-batches of each update: (source [B, S], target [B, T]) int32, without empty rows and
    columns.
    """
    import numpy as np

    with np.load(task["batches"]) as arrays:

        def read(update: int, index: int) -> tuple:
            return tuple(arrays[f"micro_batch/{update}/{index}/{side}"] for side in ("source", "target"))

        return [[read(update, each) for each in range(number)] for update, number in enumerate(task["micro_batches"])]


def read_weights(task: dict) -> dict | None:
    """Returns the initial weights by the names of `ours.named_variables`; `None` if each contestant draws its own."""
    import numpy as np

    if not task["weights"]:
        return None
    with np.load(task["weights"]) as arrays:
        return dict(arrays)


def serve(task: dict, requests, answers) -> None:
    """Builds the contestant, reads a request from each line of `requests`, and answers in `answers`; see the module.
    The task is what `train.py` wrote: its `module` is the contestant's here, whose `start(task)` returns a function
    (indices of updates) → dict.
    """
    make_updates = importlib.import_module(f"benchmarks.train_peers.{task['module']}").start(task)
    for line in requests:
        started = time.perf_counter()
        result = make_updates(json.loads(line))
        seconds = time.perf_counter() - started
        answers.write(json.dumps({"seconds": seconds, "peak_bytes": peak_memory(), **result}) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Libraries may print to standard output, which has the answers only.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as own:
        os.dup2(2, 1)
        serve(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), sys.stdin, own)
