"""Faults made by a tool: a random sample of small changes of the package and the programs, each with the tests that
reach it. A test should fail for each.

    pip install -e ".[test,mutation]"
    python tests/mutation.py reach               # which test reaches which part of the package; once, 25 minutes
    python tests/mutation.py run --sample=300    # the sample
    python tests/mutation.py report              # the table, and the mutants that survived

Both resume where they stopped. What is found is kept in `.mutation/`, which git ignores. `mutation_reasons.toml` says
of mutants that survive why no test can see them.

The programs fork: a parent has imported what the tests import, but not the package. A child has a copy of the
repository, with one mutant, and runs pytest. A test reaches a block of statements when it runs it, also in a program
that it starts, and in a function that TensorFlow converts to a graph, where coverage.py sees nothing.
`mutation_operators.py` says what a mutant changes.
"""

import argparse
import ast
import collections
import contextlib
import difflib
import functools
import hashlib
import importlib
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import tomllib
import types
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from mutants import copy_repository

ROOT = pathlib.Path(__file__).parent.parent
MUTATED = ("t2t_keras", "tools")
KEPT = ROOT / ".mutation"
REASONS = ROOT / "tests/mutation_reasons.toml"
# About the text of the code, which a mutant changes; and the machinery of faults itself.
NOT_ASKED = {"test_mutants.py", "test_mutation.py", "test_build.py"}
# What tests import, so that a child need not. None of these starts TensorFlow's runtime, which no child would survive.
IMPORTED = (
    "numpy", "tensorflow", "keras", "tensorflow_text", "sacrebleu", "sentencepiece", "matplotlib.pyplot",
    "tensorflow_datasets", "ctranslate2", "werkzeug", "num2words", "sacremoses", "tensorboard",
    "tensorflow_serving.apis", "requests", "yaml", "selenium.webdriver", "rouge_score.rouge_scorer", "absl.app",
    "tensorboard.backend.event_processing.event_accumulator", "tensorboard.plugins.hparams.api",
    "tensorboard.plugins.projector", "tqdm",
)  # fmt: skip
MEMORY, FILE_SIZE = 10 << 30, 1 << 30  # Bytes that a child may take.


class Block(NamedTuple):
    """Statements of a function that are run one after the other.

    Attributes:
        name: file, function and number in the function: other functions may change.
        first, last: lines, counted from 1.
        before: the line before which the report of the block is put.
        head: the first line of the function with its decorators, for its first block; else `first`.
    """

    name: str
    first: int
    last: int
    before: int
    head: int


def blocks(file: str, text: str) -> list[Block]:
    """All blocks of a file that have a line of their own."""
    found, lines = [], text.splitlines()

    def bodies(node) -> Iterator[list]:
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body:
                yield body
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield inner.body

    def start(statement) -> int:
        return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])

    def visit(body: list, function: str, counter: list[int], head: int | None) -> None:
        first = next(
            (each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))), None
        )
        if function and first is not None:
            before = start(first)
            line = lines[before - 1]
            if line[: first.col_offset].strip(" @") == "" and not line.strip().startswith("elif"):
                found.append(
                    Block(
                        f"{file}:{function}:{counter[0]}",
                        start(body[0]),
                        body[-1].end_lineno,
                        before,
                        head or start(body[0]),
                    )
                )
                counter[0] += 1
        for each in body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(each.body, f"{function}.{each.name}".lstrip("."), [0], start(each))
            elif isinstance(each, ast.ClassDef):
                for inner in each.body:
                    if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                        visit_class(inner, f"{function}.{each.name}".lstrip("."))
            else:
                for inner in bodies(each):
                    visit(inner, function, counter, None)

    def visit_class(each, outer: str) -> None:
        if isinstance(each, ast.FunctionDef):
            visit(each.body, f"{outer}.{each.name}", [0], start(each))
        else:
            for inner in each.body:
                if isinstance(inner, ast.FunctionDef | ast.ClassDef):
                    visit_class(inner, f"{outer}.{each.name}")

    visit(ast.parse(text).body, "", [0], None)
    return found


REPORT = '''"""Writes which blocks of the package are run, by all processes of a test."""

import contextlib
import pathlib

folder = pathlib.Path({folder!r})
seen = set()


def report_block(block):
    if block not in seen:
        seen.add(block)
        with contextlib.suppress(OSError), open(folder / "reached", "a") as file:  # A test may limit the size of files.
            file.write(f"{{(folder / 'now').read_text()}} {{block}}\\n")


report_block.autograph_info__ = None  # AutoGraph calls it as it is.
'''


def watched(text: str, found: list[Block], numbers: dict[str, int]) -> str:
    """The file, with a report at the beginning of each block."""
    lines = text.splitlines(keepends=True)
    for block in sorted(found, key=lambda block: -block.before):
        line = lines[block.before - 1]
        space = line[: len(line) - len(line.lstrip())]
        lines.insert(block.before - 1, f"{space}report_block({numbers[block.name]})\n")
    tree = ast.parse(text).body
    place = next((each.lineno - 1 for each in tree if isinstance(each, ast.Import | ast.ImportFrom)), None)
    place = (tree[0].end_lineno if place is None else place) if tree else 0
    lines.insert(place, "from reached_blocks import report_block\n")
    return "".join(lines)


def sources(root: pathlib.Path = ROOT) -> dict[str, str]:
    """The text of the files of the package and of the programs, by their path from the root."""
    files = sorted(path for folder in MUTATED for path in (root / folder).rglob("*.py") if path.name != "__init__.py")
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}


# Children.


def copy(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the repository, as git would have it."""
    shutil.rmtree(folder, ignore_errors=True)
    return copy_repository(folder, ROOT)


@contextlib.contextmanager
def _folder() -> Iterator[pathlib.Path]:
    """A temporary folder. Unlike `tempfile.TemporaryDirectory`, a fork that ends does not remove it."""
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def import_packages() -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # As `programs.py` imports it.
    os.environ["MPLBACKEND"] = "agg"
    # A file that changes within a second would be taken for the one before.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Outcome(NamedTuple):
    """How a child ended.

    Attributes:
        code: pytest's exit code; -1: it was out of time; below: minus the signal that ended it.
        seconds: of computation, by the child and the programs that it started.
    """

    code: int
    seconds: float


class Child:
    """A forked process that runs pytest in a copy of the repository.

    Args:
        root: the copy, in a folder of its own, where `output` and temporary files are written too.
        arguments: of pytest.
        plugin: an object with hooks of pytest.
        cpu_seconds: after which each of its processes is ended.
        wall_seconds: after which all of them are.
    """

    def __init__(
        self, root: pathlib.Path, arguments: list[str], plugin, cpu_seconds: float = 3600, wall_seconds: float = 3600
    ):
        self.folder, self.end = root.parent, time.monotonic() + wall_seconds
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            for limit, value in (
                (resource.RLIMIT_CPU, int(cpu_seconds)),
                (resource.RLIMIT_DATA, MEMORY),
                (resource.RLIMIT_FSIZE, FILE_SIZE),
                (resource.RLIMIT_CORE, 0),
            ):
                resource.setrlimit(limit, (value, value))
            temporary = self.folder / "tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            os.environ |= {"PYTHONPATH": str(root), "TMPDIR": str(temporary)}
            tempfile.tempdir = str(temporary)
            os.chdir(root)
            sys.path[:] = [
                str(root),
                *(path for path in sys.path if pathlib.Path(path or ".").resolve() not in (ROOT, ROOT / "tests")),
            ]
            sys.argv = ["pytest"]
            if (root / "tests/programs.py").exists():
                _serve_programs(root / "tests")
            code = int(
                pytest.main(
                    ["-q", "-p", "no:cacheprovider", f"--basetemp={temporary / 'pytest'}", *arguments], [plugin]
                )
            )
            sys.stdout.flush()
        finally:
            os._exit(code)

    def ended(self) -> Outcome | None:
        """None while it runs."""
        late = time.monotonic() > self.end
        if late:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        pid, status, usage = os.wait4(self.pid, 0 if late else os.WNOHANG)
        if not pid:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        _end_others(self.folder)
        code = os.waitstatus_to_exitcode(status)
        late = late or code in (-signal.SIGXCPU, -signal.SIGKILL)
        return Outcome(-1 if late else code, usage.ru_utime + usage.ru_stime)

    def stop(self) -> None:
        self.end = 0
        self.ended()


def _serve_programs(tests: pathlib.Path) -> None:
    """Makes the programs that tests run forks of this process; `programs.py` would start another one and import the
    same again.
    """
    sys.path.insert(1, str(tests))
    import programs

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        programs._serve(theirs)
    theirs.close()
    forks, others = types.SimpleNamespace(socket=ours), programs._server
    forks.start = functools.partial(programs._Server.start, forks)
    programs._server = lambda modules, *key: forks if "tensorflow" in modules else others(modules, *key)


def _end_others(folder: pathlib.Path) -> None:
    """Ends programs that the tests in a folder have left running."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ProcessLookupError):
            if int(process.name) != os.getpid() and f"{folder}/".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


# Which test reaches what.


class Watch:
    """Hooks of pytest that note each test, its fixtures, and what is run for them. What is run for a fixture counts for
    all its tests.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder, self.places, self.tests = folder, [], {}
        self._at("the file")

    def _at(self, place: str) -> None:
        if place not in self.places:
            self.places.append(place)
        (self.folder / "next").write_text(str(self.places.index(place)))
        (self.folder / "next").replace(self.folder / "now")  # At once: programs read it.
        module = sys.modules.get("reached_blocks")
        if module:
            module.seen.clear()
        self.place = place

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self._at(item.nodeid)
        before = _cpu_seconds()
        test = self.tests[item.nodeid] = {"failed": False, "skipped": False}
        found = yield
        test["seconds"] = round(_cpu_seconds() - before, 3)
        fixtures = (each[-1] for each in item._fixtureinfo.name2fixturedefs.values())
        test["fixtures"] = sorted(_fixture(each) for each in fixtures if each.scope != "function" and each.baseid)
        self._at("the file")
        return found

    def pytest_runtest_logreport(self, report):
        for outcome in ("failed", "skipped"):
            self.tests[report.nodeid][outcome] |= getattr(report, outcome)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        before = self.place
        if fixturedef.scope != "function":
            self._at(_fixture(fixturedef))
        try:
            return (yield)
        finally:
            self._at(before)

    def pytest_sessionfinish(self):
        (self.folder / "tests.json").write_text(json.dumps({"places": self.places, "tests": self.tests}))


def _fixture(definition) -> str:
    return f"{definition.baseid} {definition.argname}"


def _cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def test_files() -> list[pathlib.Path]:
    return [path for path in sorted((ROOT / "tests").glob("test_*.py")) if path.name not in NOT_ASKED]


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def reach(jobs: int, words: list[str]) -> None:
    """Runs each test file that is new or has changed, and writes .mutation/reach/FILE.json: its tests, and the blocks
    that each reaches.
    """
    (KEPT / "reach").mkdir(parents=True, exist_ok=True)
    waiting = []
    for path in test_files():
        kept = KEPT / "reach" / f"{path.stem}.json"
        if not kept.exists() or json.loads(kept.read_text())["digest"] != _digest(path):
            if not words or any(word in path.name for word in words):
                waiting.append(path)
    with _folder() as folder:
        copies, running = [], {}
        numbers = {}
        for index in range(jobs):
            root = copy(folder / str(index) / "copy")
            for file, text in sources(root).items():
                found = blocks(file, text)
                numbers |= {
                    block.name: numbers.get(block.name, len(numbers) + place) for place, block in enumerate(found)
                }
                (root / file).write_text(watched(text, found, numbers), encoding="utf-8")
            (root / "reached_blocks.py").write_text(REPORT.format(folder=str(root.parent)))
            copies.append(root)
        names = {number: name for name, number in numbers.items()}
        import_packages()
        try:
            while waiting or running:
                while waiting and copies:
                    path, root = waiting.pop(0), copies.pop()
                    for name in ("reached", "tests.json"):
                        (root.parent / name).unlink(missing_ok=True)
                    running[Child(root, [f"tests/{path.name}"], Watch(root.parent))] = (path, root)
                for child, (path, root) in list(running.items()):
                    outcome = child.ended()
                    if outcome is not None:
                        del running[child]
                        copies.append(root)
                        print(f"{path.name:35} {_keep(path, root.parent, names)} {outcome.seconds:6.1f} s", flush=True)
                time.sleep(0.1)
        finally:
            for child in running:
                child.stop()


def _keep(path: pathlib.Path, folder: pathlib.Path, names: dict[int, str]) -> str:
    if not (folder / "tests.json").exists():
        return "failed: " + (folder / "output").read_text(errors="replace")[-300:]
    found = json.loads((folder / "tests.json").read_text())
    by_place = collections.defaultdict(set)
    lines = (folder / "reached").read_text().splitlines() if (folder / "reached").exists() else []
    for place, block in map(str.split, lines):
        by_place[found["places"][int(place)]].add(names[int(block)])
    kept = {
        "digest": _digest(path),
        "tests": found["tests"],
        "reached": {place: sorted(each) for place, each in by_place.items()},
    }
    target = KEPT / "reach" / f"{path.stem}.json"
    target.with_suffix(".new").write_text(json.dumps(kept))
    target.with_suffix(".new").rename(target)
    failed = sum(test["failed"] for test in found["tests"].values())
    return f"{len(found['tests']):4} tests, {failed} failed"


class Test(NamedTuple):
    """A test and what it reaches.

    Attributes:
        name: pytest's node id.
        seconds: of computation.
        own: blocks of its own run, and of its fixtures.
        shared: blocks that the import of its file reaches, or other tests with the same fixtures: what they have made
            may be used again.
    """

    name: str
    seconds: float
    own: frozenset
    shared: frozenset


def tests() -> list[Test]:
    """All tests that pass, from what `reach` has found."""
    found = []
    for path in sorted((KEPT / "reach").glob("*.json")):
        kept = json.loads(path.read_text())
        reached = {place: frozenset(each) for place, each in kept["reached"].items()}
        nothing = frozenset()
        by_fixture = collections.defaultdict(set)
        for name, test in kept["tests"].items():
            for fixture in test["fixtures"]:
                by_fixture[fixture] |= reached.get(name, nothing)
        for name, test in kept["tests"].items():
            if not (test["failed"] or test["skipped"]):
                own = frozenset.union(*(reached.get(place, nothing) for place in (name, *test["fixtures"])))
                shared = reached.get("the file", nothing).union(*(by_fixture[fixture] for fixture in test["fixtures"]))
                found.append(Test(name, test["seconds"], own, shared))
    return found


# Mutants.


class Sampled(NamedTuple):
    """A mutant of the sample.

    Attributes:
        key: file and changed lines; verdicts are kept by it, also when other lines move.
        file: path from the root.
        removed, added: the changed lines, with single spaces.
        line: counted from 1.
        text: the file with the mutant.
    """

    key: str
    file: str
    removed: str
    added: str
    line: int
    text: str


def sample(seed: int, number: int, words: list[str] = ()) -> Iterator[Sampled]:
    """The first mutants of all `sources` in a random order, which a change of a file leaves as it is for all other
    mutants.
    """
    import mutation_operators

    files, places, counted = sources(), [], collections.Counter()
    for file, text in files.items():
        lines = text.splitlines()
        for mutant in mutation_operators.mutants(text):
            place = f"{file} {mutant.operator} {lines[mutant.line - 1].strip()}"
            counted[place] += 1
            places.append((hashlib.sha256(f"{seed} {place} {counted[place]}".encode()).digest(), file, mutant))
    seen = set()
    for _, file, mutant in sorted(places):
        if len(seen) == number:
            return
        text = mutation_operators.mutated(files[file], mutant)
        if text is None:
            continue
        changes = list(difflib.unified_diff(files[file].splitlines(), text.splitlines(), n=0, lineterm=""))[2:]
        removed, added = (
            "\n".join(" ".join(line[1:].split()) for line in changes if line.startswith(sign)) for sign in "-+"
        )
        key = f"{file}: {removed} -> {added}"
        if key not in seen:
            seen.add(key)
            if not words or any(word in file for word in words):
                yield Sampled(key, file, removed, added, mutant.line, text)


def reasons() -> dict[tuple[str, str, str], str]:
    """Why a mutant is left, by its file, the line and what became of it."""
    with open(REASONS, "rb") as file:
        return {(each["file"], each["old"], each["new"]): each["why"] for each in tomllib.load(file)["survivor"]}


def squeezed(text: str) -> str:
    """A text without what a formatter may change: white space, and commas before a closing bracket."""
    return re.sub(r",(?=[)\]}]|$)", "", re.sub(r"\s", "", text))


def changed(text: str, old: str, new: str) -> set[str]:
    """The squeezed texts in which one occurrence of `old` has become `new`."""
    text, old, new = map(squeezed, (text, old, new))
    return {text[: at.start()] + new + text[at.end() :] for at in re.finditer(re.escape(old), text)}


def has_reason(mutant: Sampled) -> bool:
    """Whether the file of reasons has this mutant, however its lines are wrapped."""
    text, mutated = (ROOT / mutant.file).read_text(encoding="utf-8"), squeezed(mutant.text)
    return any(file == mutant.file and mutated in changed(text, old, new) for file, old, new in reasons())


def around_of(mutant: Sampled) -> list[Block]:
    """The blocks around a mutant; none if it is outside functions."""
    return [block for block in blocks(mutant.file, sources()[mutant.file]) if block.head <= mutant.line <= block.last]


def blocks_of(mutant: Sampled) -> set[str]:
    """The blocks that a mutant changes: the one around it, or those that mention a name that is defined there; at last
    all of the file.
    """
    files = sources()
    found = blocks(mutant.file, files[mutant.file])
    if around := around_of(mutant):
        return {min(around, key=lambda block: block.last - block.first).name}
    tree = ast.parse(files[mutant.file])
    names = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
            and node.lineno <= mutant.line <= node.end_lineno
        ):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
    mentions = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b") if names else None
    mentioned = set()
    if mentions:
        for file, text in files.items():
            lines = text.splitlines()
            for block in blocks(file, text):
                if mentions.search("\n".join(lines[block.head - 1 : block.last])):
                    mentioned.add(block.name)
    return mentioned or {block.name for block in found}


def chosen(mutant: Sampled, known: list[Test], limit: float) -> tuple[list[str], float, int]:
    """The tests that reach a mutant, those first that reach little else and are quick; their seconds; how many there
    are in all.

    Those beyond `limit` seconds are left out, but for the first three. Tests of a file that imports what has the mutant
    are preferred, and all of them reach a constant.
    """
    changed, is_constant, ranked = blocks_of(mutant), not around_of(mutant), []
    imports = re.compile(rf"^(from|import) .*\b{pathlib.Path(mutant.file).stem}\b", re.MULTILINE)
    importing = {f"tests/{path.name}" for path in test_files() if imports.search(path.read_text(encoding="utf-8"))}
    for test in known:
        share, imported = len(changed & test.own), test.name.partition("::")[0] in importing
        if share or (is_constant and imported):
            ranked.append(((0.1 if imported else 1) * (1 + len(test.own)) * (0.2 + test.seconds) / max(share, 1), test))
        elif changed & test.shared:
            ranked.append((1e6 + len(test.own) * (0.2 + test.seconds), test))
    ranked.sort(key=lambda pair: pair[0])
    taken, seconds = [], 0.0
    for index, (rank, test) in enumerate(ranked):
        if index < 3 or seconds + test.seconds <= limit:
            # Tests of one file share fixtures, so they follow one another where their ranks are alike.
            taken.append((int(math.log(1 + rank, 4)), test.name.partition("::")[0], index, test.name))
            seconds += test.seconds
    return [name for *_, name in sorted(taken)], seconds, len(ranked)


class Only:
    """A hook of pytest that keeps some tests, in their order."""

    def __init__(self, names: list[str]):
        self.places = {name: place for place, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items):
        items[:] = sorted(
            (item for item in items if item.nodeid in self.places), key=lambda item: self.places[item.nodeid]
        )


def verdicts() -> dict[str, dict]:
    """What was found last of each mutant."""
    path = KEPT / "verdicts.jsonl"
    return {each["key"]: each for each in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def _verdict(code: int) -> str:
    return {0: "survived", -1: "out of time", 5: "not reached"}.get(code, "caught")


def run(seed: int, number: int, jobs: int, limit: float, words: list[str], again: bool) -> None:
    """Runs the tests of each mutant of the sample that has no verdict; `again`: also of those that were not caught."""
    known, before = tests(), verdicts()
    waiting = []
    for mutant in sample(seed, number, words):
        verdict = before.get(mutant.key, {}).get("verdict")
        if (verdict is None or (again and verdict != "caught")) and not has_reason(mutant):
            waiting.append(mutant)
    print(f"{len(waiting)} mutants to run, {len(known)} tests.", flush=True)
    import_packages()
    with _folder() as folder, open(KEPT / "verdicts.jsonl", "a", encoding="utf-8") as file:
        clean, copies = copy(folder / "clean"), [copy(folder / str(index) / "copy") for index in range(jobs)]
        running = {}

        def keep(
            mutant: Sampled, names: list[str], number: int, verdict: str, seconds: float = 0.0, output: str = ""
        ) -> None:
            failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", output, re.MULTILINE)
            found = {
                "verdict": verdict,
                "test": failed and failed[1],
                "tests": len(names),
                "of": number,
                "seconds": round(seconds, 1),
            }
            print(json.dumps({"key": mutant.key, **found}), file=file, flush=True)
            print(f"{verdict:11} {seconds:6.1f} s {len(names):4} of {number:4} tests  {mutant.key[:150]}", flush=True)

        try:
            while waiting or running:
                while waiting and copies:
                    mutant = waiting.pop(0)
                    names, seconds, number = chosen(mutant, known, limit)
                    if not names:
                        keep(mutant, names, number, "not reached")
                        continue
                    root = copies.pop()
                    (root / mutant.file).write_text(mutant.text, encoding="utf-8")
                    files = dict.fromkeys(name.partition("::")[0] for name in names)
                    child = Child(root, ["-x", *files], Only(names), 60 + 4 * seconds, 240 + 20 * seconds)
                    running[child] = (mutant, root, names, number)
                for child, (mutant, root, names, number) in list(running.items()):
                    outcome = child.ended()
                    if outcome is not None:
                        del running[child]
                        output = (root.parent / "output").read_text(errors="replace")
                        keep(mutant, names, number, _verdict(outcome.code), outcome.seconds, output)
                        copies.append(_restored(root, clean, mutant.file))
                time.sleep(0.05)
        finally:
            for child in running:
                child.stop()


def _restored(root: pathlib.Path, clean: pathlib.Path, file: str) -> pathlib.Path:
    """The copy as it was: a mutant may have changed the tests' data too."""
    shutil.copy2(clean / file, root / file)
    shutil.rmtree(root / "tests/data")
    shutil.copytree(clean / "tests/data", root / "tests/data")
    return root


def report(seed: int, number: int, words: list[str]) -> None:
    """Prints a table of the folders, and the mutants that no test has caught."""
    found = verdicts()
    table, missed = collections.defaultdict(collections.Counter), []
    for mutant in sample(seed, number, words):
        kept = found.get(mutant.key, {"verdict": "not run", "tests": 0, "of": 0})
        verdict = kept["verdict"]
        if verdict != "caught" and has_reason(mutant):
            verdict = "with a reason"
        place = mutant.file.removeprefix(f"{MUTATED[0]}/").partition("/")
        table["".join(place[:2])][verdict] += 1
        if verdict not in ("caught", "with a reason", "not run"):
            missed.append((mutant, verdict, kept))
    columns = ("caught", "survived", "not reached", "out of time", "with a reason", "not run")
    print(f"{'':22}" + "".join(f"{column:>15}" for column in ("mutants", *columns)))
    total = sum(table.values(), collections.Counter())
    for name, row in [*sorted(table.items()), ("all", total)]:
        print(f"{name:22}{sum(row.values()):15}" + "".join(f"{row[column]:15}" for column in columns))
    counted = sum(total[column] for column in columns[:4])
    if counted:
        ended = total["caught"] + total["out of time"]
        print(f"{total['caught'] / counted:.1%} of {counted} caught; {ended / counted:.1%} with those out of time.")
    for mutant, verdict, kept in missed:
        print(f"\n{mutant.file}:{mutant.line}: {verdict}, {kept['tests']} of {kept['of']} tests")
        for sign, text in (("-", mutant.removed), ("+", mutant.added)):
            print("\n".join(f"  {sign} {line}" for line in text.splitlines()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("reach", "run", "report"))
    parser.add_argument("words", nargs="*", help="only files whose path contains one of these")
    parser.add_argument("--seed", type=int, default=0, help="of the random sample")
    parser.add_argument(
        "--sample", type=int, default=300, help="number of mutants, of the package and the programs together"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--limit", type=float, default=60, help="seconds of tests for one mutant")
    parser.add_argument("--again", action="store_true", help="run those too that were not caught")
    given = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the children end, too.
    if given.command == "reach":
        reach(given.jobs, given.words)
    elif given.command == "run":
        run(given.seed, given.sample, given.jobs, given.limit, given.words, given.again)
    else:
        report(given.seed, given.sample, given.words)


if __name__ == "__main__":
    main()
