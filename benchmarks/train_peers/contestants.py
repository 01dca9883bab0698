"""The contestants of `benchmarks/train.py`, and the processes that they work in."""

import contextlib
import dataclasses
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from benchmarks.passes.process import ROOT, end, process_environment


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A system to measure.

    Attributes:
        name: in the table.
        module: in `benchmarks.train_peers`.
        packages: what must be installed.
        options: for the module.
        install: command that installs them.
        environment: variables of its process, with which it is faster.
        python: interpreter that the packages are installed with.
    """

    name: str
    module: str
    packages: tuple[str, ...] = ()
    options: dict = dataclasses.field(default_factory=dict)
    install: str = "pip install -e '.[bench]'"
    environment: dict = dataclasses.field(default_factory=dict)
    python: str = sys.executable


# glibc keeps freed memory. Without it, the system clears the pages of large tensors at each allocation.
KEEP_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(2**28),
    "MALLOC_TRIM_THRESHOLD_": str(2**36),
}
OURS = Contestant("t2t_keras", "ours")
PEERS = (
    Contestant("PyTorch plain (eager)", "pytorch", ("torch",), {"model": "plain"}),
    Contestant("PyTorch plain (compiled)", "pytorch", ("torch",), {"model": "plain", "compile": "dynamic"}),
    Contestant("PyTorch plain (compiled per shape)", "pytorch", ("torch",), {"model": "plain", "compile": "per shape"}),
    Contestant("PyTorch nn.Transformer (eager)", "pytorch", ("torch",), {"model": "nn.Transformer"}),
    Contestant(
        "PyTorch nn.Transformer (compiled)", "pytorch", ("torch",), {"model": "nn.Transformer", "compile": "dynamic"}
    ),
    Contestant("Hugging Face Marian", "pytorch", ("torch", "transformers"), {"model": "marian"}),
    Contestant("KerasHub fit", "keras_hub_fit", ("keras-hub",)),
    Contestant(
        "JoeyNMT",
        "pytorch",
        ("torch", "joeynmt"),
        {"model": "joey"},
        "pip install -e '.[bench]'; pip install --no-deps joeynmt subword-nmt 'importlib_metadata<8' zipp",
        environment=KEEP_MEMORY,
    ),
)
CEILINGS = (
    Contestant("ceiling of TensorFlow", "ceiling", (), {"library": "tensorflow"}),
    Contestant("ceiling of PyTorch", "ceiling", ("torch",), {"library": "pytorch"}),
)


class ContestantError(OSError):
    """The process of a contestant failed."""


class Process:
    """A contestant in a process of its own, which is stopped except while it works on a request. `task` is for
    `train_peers.worker`, and the folder for its files. If the process fails, `failed` is true, and `run` raises
    `ContestantError`.
    """

    def __init__(self, contestant: Contestant, task: dict, folder: pathlib.Path):
        self.name, self.failed = contestant.name, False
        file = folder / (re.sub(r"\W+", "_", contestant.name) + ".json")
        file.write_text(
            json.dumps({**task, "module": contestant.module, "options": contestant.options}), encoding="utf-8"
        )
        self._log, self.started = file.with_suffix(".log"), time.perf_counter()
        # A cold cache, so that the time to the first step has all of the compilation.
        own = {"TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp(dir=folder), **contestant.environment}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [contestant.python, "-m", "benchmarks.train_peers.worker", str(file)],
                env=process_environment(**own), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip

    def run(self, updates: list[int]) -> dict:
        """Makes some updates and returns the answer; see `train_peers.worker`."""
        self._process.send_signal(signal.SIGCONT)
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(updates) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            self.failed = True
            self._process.wait()
            last = self._log.read_text(errors="replace").strip().splitlines()[-3:]
            raise ContestantError(f"{self.name} failed: {' '.join(last)[-500:]}")
        self._process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def close(self) -> None:
        """Ends the process and those that it has started."""
        end(self._process)
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()


def versions(python: str) -> dict:
    """Returns the versions of the packages that an interpreter has, by name, of those that matter here."""
    packages = sorted({"tensorflow", "keras", *(package for peer in PEERS for package in peer.packages)})
    code = """if True:
        import importlib.metadata, json, sys
        found = {}
        for package in sys.argv[1:]:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                pass
        print(json.dumps(found))"""
    result = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)
