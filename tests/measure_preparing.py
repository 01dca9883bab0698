"""Measures how fast processes divide text into sub-words and write it, in CPU seconds. Not a test:

python tests/measure_preparing.py data/x train.en train.de 1 2 4 # A prepared folder, text, and numbers of processes.
"""

import pathlib
import resource
import sys
import tempfile
import time

from t2t_keras.data import prepare, text_files
from t2t_keras.runs import registry
from t2t_keras.system import files
from t2t_keras.text import vocabulary


def cpu_seconds(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def main(data_dir: str, source: str, target: str, *numbers: str) -> None:
    subwords = vocabulary.load((pathlib.Path(data_dir) / files.SUBWORDS).read_bytes())
    for number in map(int, numbers):
        with tempfile.TemporaryDirectory() as folder:
            before, started = (
                [cpu_seconds(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)],
                time.monotonic(),
            )
            pairs = text_files.pairs(source, target, report=(report := text_files.Report()))
            options = {"number": number, "count": 2**20, "seed": 1}
            info = prepare.write(
                pathlib.Path(folder), pairs, subwords, 255, report, registry.task("translation"), **options
            )
            wall = time.monotonic() - started
        own, others = (
            cpu_seconds(whose) - used
            for whose, used in zip((resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN), before, strict=True)
        )
        print(
            f"{number}: {info['pairs']:,} pairs in {wall:.0f} s; CPU: {own:.1f} s of this process, {others:.1f} s of "
            "others",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
