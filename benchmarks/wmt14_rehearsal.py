"""Rehearses `configs/wmt14_en_de_base.flags` at full size on a generated corpus, and measures time and memory of each
stage.

    python benchmarks/wmt14_rehearsal.py --work_dir=/tmp/wmt14    # 4.5 M pairs; needs 12 GB of disk
    python benchmarks/wmt14_rehearsal.py --work_dir=/tmp/small --pairs=20000 --steps=4 --vocab_size=4000 \\
        --batch_tokens=1000

It generates text with the lengths of WMT14's, learns sub-words from the sample, writes shards, and trains: once without
a break, and once killed (SIGKILL) and resumed, and compares their weights. The same command continues after the last
complete stage; --again repeats one.
"""

import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
from absl import flags

from t2t_keras.cli import program
from t2t_keras.system import markdown

_WORK_DIR = flags.DEFINE_string("work_dir", None, "Folder for all files; 12 GB with the defaults.", required=True)
_PAIRS = flags.DEFINE_integer("pairs", 4_500_000, "Number of training pairs.", lower_bound=1000)
_STEPS = flags.DEFINE_integer("steps", 20, "Number of updates.", lower_bound=4)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 37_000, "Number of sub-words.", lower_bound=300)
_BATCH_TOKENS = flags.DEFINE_integer("batch_tokens", 25_000, "Tokens of an update on each side.", lower_bound=100)
_SUBWORDS = flags.DEFINE_enum("subwords", "bpe", ["bpe", "wordpiece"], "Kind of sub-words.")
_AGAIN = flags.DEFINE_list("again", [], "Stages to repeat: generate, prepare, train, kill, resume.")
_GENERATE = flags.DEFINE_boolean("generate", False, "Internal: generate the text.")

ROOT = pathlib.Path(__file__).parent.parent
SEED = 14
VALID_PAIRS = 3000  # As newstest2013.
TYPES = 300_000  # Different words on each side.
# Zipf-Mandelbrot: the frequency of the word of rank r is proportional to 1 / (r + SHIFT)^EXPONENT.
EXPONENT, SHIFT = 1.2, 2.7
# Words in a source sentence: log-normal, 25 on average as in WMT14's training text.
MEAN_LOG, DEVIATION_LOG, MAX_WORDS = 3.06, 0.58, 100
PAIRS_AT_ONCE = 50_000


# The text. The target is the source, word for word in another language, with some words left out: a model can learn it.


def lexicon(draw: random.Random, consonants: str, vowels: str) -> list[str]:
    """Returns different words, the most frequent ones first, which are the shortest."""
    endings = [*[""] * 30, *("".join(draw.choice(part) for part in (vowels, consonants)) for _ in range(30))]
    found: dict[str, None] = {}
    while len(found) < TYPES:
        syllables = 1 + min(4, int(draw.expovariate(1.6) + len(found).bit_length() / 10))
        stem = "".join(draw.choice(consonants) + draw.choice(vowels) for _ in range(syllables))
        found[stem + draw.choice(endings)] = None
    return list(found)


def generate(folder: pathlib.Path, pairs: int) -> None:
    """Writes train.en, train.de, valid.en and valid.de."""
    words = random.Random(SEED)
    lexicons = [lexicon(words, "bcdfghklmnprstvwz", "aeiouy"), lexicon(words, "bdfgklmnprsßtvwz", "aeiouäöü")]
    # Of both languages: words without and with a comma.
    source, target = (
        np.array([list_of_words, [f"{word}," for word in list_of_words]], object) for list_of_words in lexicons
    )
    cumulative = np.cumsum((np.arange(TYPES) + SHIFT) ** -EXPONENT)
    cumulative /= cumulative[-1]
    for split, number in (("train", pairs), ("valid", VALID_PAIRS)):
        draw = np.random.default_rng([SEED, number])
        with (
            (folder / f"{split}.en").open("w", encoding="utf-8") as english,
            (folder / f"{split}.de").open("w", encoding="utf-8") as german,
        ):
            for first in range(0, number, PAIRS_AT_ONCE):
                count = min(PAIRS_AT_ONCE, number - first)
                lengths = np.clip(draw.lognormal(MEAN_LOG, DEVIATION_LOG, count).astype(int), 1, MAX_WORDS)
                ids = np.searchsorted(cumulative, draw.random(lengths.sum()))
                commas, kept = (draw.random(len(ids)) < 0.06).astype(int), draw.random(len(ids)) > 0.06
                marks = draw.choice(list("...?!"), count)
                ends = np.cumsum(lengths)
                _write(english, source[commas, ids], ends, marks)
                _write(german, target[commas, ids][kept], np.cumsum(kept)[ends - 1], marks)


def _write(file, words, ends, marks) -> None:
    """Writes sentences that end before these indices of `words`, each with its mark."""
    words, start = words.tolist(), 0
    for end, mark in zip(ends.tolist(), marks.tolist(), strict=True):
        file.write(" ".join(words[start:end]).rstrip(",").capitalize() + mark + "\n")
        start = end


# Measuring.


class Child:
    """A program of this project in a process of its own, which writes to a file, `log`. `lines` are (seconds since the
    start, line) of what it has written to stderr so far.
    """

    def __init__(self, command: list[str], log: pathlib.Path):
        self._started, self.lines, self._memory = time.monotonic(), [], []
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, args=[log])
        self._watcher = threading.Thread(target=self._watch)
        self._reader.start()
        self._watcher.start()

    def _read(self, log: pathlib.Path) -> None:
        with log.open("a", encoding="utf-8") as file:
            for line in self.process.stderr:
                self.lines.append((time.monotonic() - self._started, line.rstrip("\n")))
                print(f"{self.lines[-1][0]:9.1f} s {line}", end="", file=file, flush=True)

    def _watch(self) -> None:
        status = pathlib.Path(f"/proc/{self.process.pid}/status")
        while self.process.poll() is None:
            try:
                found = re.search(r"VmRSS:\s+(\d+)", status.read_text())
            except OSError:
                return
            if found:
                self._memory.append((time.monotonic() - self._started, int(found[1]) / 2**20))
            time.sleep(0.1)

    def wait(self) -> float:
        """Waits for the end of the process and returns its duration in seconds. Raises `RuntimeError` if it failed."""
        code = self.process.wait()
        duration = time.monotonic() - self._started
        self._reader.join()
        self._watcher.join()
        if code:
            last = "\n".join(line for _, line in self.lines[-20:])
            raise RuntimeError(f"{self.process.args} ended with code {code}:\n{last}")
        return duration

    def wait_for(self, text: str) -> None:
        """Waits for a line that contains a text."""
        while not any(text in line for _, line in list(self.lines)):
            if self.process.poll() is not None:
                self.wait()
                raise RuntimeError(f"{self.process.args} ended before it wrote '{text}'.")
            time.sleep(0.05)

    def when(self, text: str) -> float:
        """Returns the time of the first line that contains a text."""
        return next(second for second, line in self.lines if text in line)

    def peak(self, start: float = 0, end: float = float("inf")) -> float:
        """Returns the largest resident memory between two times, in GiB."""
        return max((gib for second, gib in self._memory if start <= second <= end), default=0)


def size(folder: pathlib.Path, pattern: str) -> str:
    """Returns the size of the files of a pattern."""
    return f"{sum(path.stat().st_size for path in folder.glob(pattern)) / 2**30:.2f} GiB"


# The stages. Each returns the rows of its part of the table: (stage, seconds, GiB of memory, remark).


def make_text(folder: pathlib.Path) -> list:
    child = Child([__file__, "--generate", f"--work_dir={folder}", f"--pairs={_PAIRS.value}"], folder / "log")
    seconds = child.wait()
    return [("generate the text", seconds, child.peak(), f"{_PAIRS.value:,} pairs, {size(folder, 'train.??')}")]


def _own(folder: pathlib.Path) -> list[str]:
    """Returns the flags of both programs: those of the config, without its corpus."""
    return [
        "--flagfile=wmt14_en_de_base", "--dataset=", "--source_language=", "--target_language=",
        f"--vocab_size={_VOCAB_SIZE.value}", f"--data_dir={folder / 'data'}",
    ]  # fmt: skip


def prepare(folder: pathlib.Path) -> list:
    shutil.rmtree(folder / "data", ignore_errors=True)
    texts = [
        f"--{split}_{side}={folder / split}.{language}"
        for split in ("train", "valid")
        for side, language in (("source", "en"), ("target", "de"))
    ]
    child = Child(["tools/prepare.py", *_own(folder), f"--subwords={_SUBWORDS.value}", *texts], folder / "log")
    seconds = child.wait()
    reading, learning, writing = (
        child.when(text) for text in ("Reading and checking", "Learning", "Writing token ids")
    )
    remark = next(line for _, line in child.lines if "sub-words a pair" in line and "train:" in line)
    lengths = re.search(r"[\d.]+ \+ [\d.]+ sub-words a pair", remark)[0]
    learned = f"{_VOCAB_SIZE.value:,}, {_SUBWORDS.value}, from at most 2 M sentences"
    return [
        ("prepare: read and check", learning - reading, child.peak(reading, learning), ""),
        ("prepare: learn sub-words", writing - learning, child.peak(learning, writing), learned),
        (
            "prepare: write token ids", seconds - writing, child.peak(writing),
            f"{lengths}; {size(folder / 'data', 'train/*')}"
        ),
    ]  # fmt: skip


def train(folder: pathlib.Path, model_dir: pathlib.Path) -> Child:
    """Starts or resumes a run."""
    return Child(
        [
            "tools/train.py", *_own(folder), f"--model_dir={model_dir}", f"--batch_tokens={_BATCH_TOKENS.value}",
            f"--train_steps={_STEPS.value}", f"--checkpoint_steps={_STEPS.value // 4}", "--checkpoint_minutes=0",
            "--keep_checkpoints=2",
            "--valid_sentences=0", "--best_metric=loss", "--attention_images=0", "--log_steps=1", "--dtype=bfloat16",
            "--deterministic",
        ],
        folder / "log",
    )  # fmt: skip


def last_update(child: Child) -> str:
    """Returns the loss of the last update."""
    line = [line for _, line in child.lines if f"update {_STEPS.value:,} of" in line][-1]
    return f"update {_STEPS.value:,}: " + re.search("loss [^,]+", line)[0]


def uninterrupted(folder: pathlib.Path) -> list:
    shutil.rmtree(folder / "whole", ignore_errors=True)
    child = train(folder, folder / "whole")
    seconds = child.wait()
    first, last = child.when(" update 1 of"), child.when(f" update {_STEPS.value:,} of")
    number, tokens = _STEPS.value - 1, f"{_BATCH_TOKENS.value:,} tokens in 4 batches"
    return [
        ("train: to the end of the first update", first, child.peak(0, first), "largest micro-batches run first"),
        (f"train: an update (mean of {number})", (last - first) / number, child.peak(first, last), tokens),
        ("train: checkpoint and validation at the end", seconds - last, child.peak(last), last_update(child)),
    ]


def kill(folder: pathlib.Path) -> list:
    shutil.rmtree(folder / "killed", ignore_errors=True)
    step = _STEPS.value // 4 * 2 + 1
    child = train(folder, folder / "killed")
    child.wait_for(f" update {step:,} of")
    time.sleep(1)  # Into the next update.
    child.process.send_signal(signal.SIGKILL)
    child.process.wait()
    return [(f"kill after update {step:,}", child.when(f" update {step:,} of"), child.peak(), "SIGKILL")]


def difference(whole: pathlib.Path, killed: pathlib.Path) -> str:
    """Compares the weights and the optimizer of two checkpoints."""
    with np.load(whole) as whole, np.load(killed) as killed:
        arrays = [array for array in whole.files if array != "state"]  # It has the duration of the run.
        differ = [array for array in arrays if not np.array_equal(whole[array], killed[array])]
        if not differ:
            return "weights and optimizer equal those of the run without a break"
        most = max(float(np.abs(whole[array] - killed[array]).max()) for array in differ)
    return (
        f"{len(differ)} of {len(arrays)} arrays of weights and optimizer differ from those without a break, by at most "
        f"{most:.1g}"
    )


def resume(folder: pathlib.Path) -> list:
    child = train(folder, folder / "killed")
    seconds = child.wait()
    whole, killed = (folder / name / "checkpoints" / f"step-{_STEPS.value:09d}.npz" for name in ("whole", "killed"))
    return [("resume to the end", seconds, child.peak(), f"{last_update(child)}; {difference(whole, killed)}")]


STAGES = {"generate": make_text, "prepare": prepare, "train": uninterrupted, "kill": kill, "resume": resume}


def table(results: dict) -> str:
    """Returns all rows as a Markdown table."""
    rows = [row for name in STAGES for row in results.get(name, ())]
    lines = []
    for stage, seconds, gib, remark in rows:
        spent = f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.1f} s"
        lines.append([stage, spent, f"{gib:.2f} GiB", remark])
    return markdown.table(["stage", "time", "peak memory", ""], lines, right=("time", "peak memory"))


def rehearse() -> None:
    folder = pathlib.Path(_WORK_DIR.value).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if _GENERATE.value:
        generate(folder, _PAIRS.value)
        return
    if unknown := set(_AGAIN.value) - set(STAGES):
        raise ValueError(f"--again: expected stages among {', '.join(STAGES)}. Received: {', '.join(sorted(unknown))}.")
    asked = {name: getattr(flags.FLAGS, name) for name in ("pairs", "steps", "vocab_size", "batch_tokens", "subwords")}
    path = folder / "results.json"
    recorded = json.loads(path.read_text()) if path.exists() else {"options": asked, "results": {}}
    if recorded["options"] != asked:
        raise ValueError(
            f"{folder} holds a rehearsal with other options: {recorded['options']}. Give another --work_dir."
        )
    results = {name: rows for name, rows in recorded["results"].items() if name not in _AGAIN.value}
    for name, stage in STAGES.items():
        if name not in results:
            print(f"{time.strftime('%H:%M:%S')} {name} …", file=sys.stderr, flush=True)
            results[name] = stage(folder)
            path.write_text(json.dumps({"options": asked, "results": results}, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    program.run(rehearse)
