"""The tool that makes faults finds those of a toy package, in what each test reaches, and leaves texts alone."""

import json
import os
import pathlib
import subprocess
import sys

import mutation
import pytest

PACKAGE = '''"""A toy."""

import dataclasses

LIMIT = 3


def double(x: int = 2) -> int:
    """Twice 2 is 4."""
    if x > LIMIT:
        raise ValueError(f"Expected at most {LIMIT + 0}.")
    return 2 * x


@dataclasses.dataclass(frozen=True)
class Sum:
    first: int = 1

    def to(self, last, step=1):
        return sum(range(self.first, last, step))
'''
TESTS = """
import pytest
from t2t_keras import toy

@pytest.fixture(scope="module")
def four():
    return toy.double(2)

def test_double(four):
    assert four == 4

def test_a_sum():
    assert toy.Sum().to(4) == 6

def test_the_limit():
    assert toy.LIMIT == 3

def test_that_fails():
    assert toy.double(3) == 7
"""


def test_blocks_are_the_statements_that_run_together():
    found = {
        block.name: (block.head, block.first, block.last) for block in mutation.blocks("t2t_keras/toy.py", PACKAGE)
    }
    assert found == {
        "t2t_keras/toy.py:double:0": (8, 9, 12),
        "t2t_keras/toy.py:double:1": (11, 11, 11),
        "t2t_keras/toy.py:Sum.to:0": (19, 20, 20),
    }


def test_a_watched_file_reports_its_blocks_and_does_the_same(tmp_path, monkeypatch):
    found = mutation.blocks("toy.py", PACKAGE)
    text = mutation.watched(PACKAGE, found, {block.name: number for number, block in enumerate(found)})
    (tmp_path / "t2t_keras").mkdir()
    (tmp_path / "t2t_keras/__init__.py").touch()
    (tmp_path / "reached_blocks.py").write_text(mutation.REPORT.format(folder=str(tmp_path)))
    (tmp_path / "t2t_keras/toy.py").write_text(text)
    (tmp_path / "now").write_text("7")
    program = "from t2t_keras import toy\nprint(toy.double(2), toy.Sum().to(4))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("4 6\n", "")
    assert (tmp_path / "reached").read_text().split("\n") == ["7 0", "7 2", ""]


def mutants(text: str) -> set[str]:
    """The changed lines, without spaces."""
    operators = pytest.importorskip("mutation_operators", reason="needs cosmic-ray", exc_type=ImportError)
    found = (operators.mutated(text, mutant) for mutant in operators.mutants(text))
    before = text.splitlines()
    return {line.replace(" ", "") for each in found if each for line in each.splitlines() if line not in before}


def test_mutants_are_small_changes():
    expected = {"deff(x,y=2):", "deff(x,y=0):", "returng(y,x,key=2)", "returng(x,y,)"}
    expected |= {"returng(x,y,key=3)", "returng(x,y,key=1)"}
    assert mutants("def f(x, y=1):\n    return g(x, y, key=2)\n") == expected
    assert mutants("if a and not b[1:]:\n    a.b = f(c)\n") == {
        *("ifaornotb[1:]:", "ifnotb[1:]:", "ifa:", "ifTrue:", "ifFalse:", "ifnotaandnotb[1:]:", "ifaandb[1:]:"),
        *("ifaandnotb[:]:", "ifaandnotb[2:]:", "ifaandnotb[0:]:", "a.b=(c)", "pass"),
    }
    assert mutants("x = [y for y in min(z) if y in w]\n") == {
        *("x=[yforyinmax(z)ifyinw]", "x=[yforyin(z)ifyinw]", "x=[yforyinmin(z)ifynotinw]", "x=[yforyinmin(z)ifTrue]"),
    }


def test_texts_types_declarations_and_messages_are_left_alone():
    found = mutants(PACKAGE)
    assert {"LIMIT=4", "pass"} <= found
    assert not [line for line in found if '"' in line or "dataclass" in line]
    assert mutants('import a\nx: dict[1, 2]\nlog.info("%d", 1)\nassert x == 1, 2\n') == {"pass"}


@pytest.mark.parametrize("file, old, new", mutation.reasons())
def test_a_reason_is_of_lines_that_are_there(file, old, new):
    text = (mutation.ROOT / file).read_text(encoding="utf-8")
    assert mutation.changed(text, old, new) - {mutation.squeezed(text)}
    assert mutation.reasons()[file, old, new].endswith(".")


def test_a_reason_holds_however_the_lines_are_wrapped():
    wrapped = "x = f(\n    1,\n    2,\n)\n"
    assert mutation.squeezed("x = f(1, 3)") in mutation.changed(wrapped, "f(1, 2)", "f(1, 3)")
    assert mutation.changed("f(1)\nf(1)", "1", "2") == {"f(2)f(1)", "f(1)f(2)"}
    assert not mutation.changed(wrapped, "f(2, 1)", "f(1, 2)")


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("repository")
    for name, text in {
        "t2t_keras/__init__.py": "", "t2t_keras/toy.py": PACKAGE, "tests/test_toy.py": TESTS, "tests/data/nothing": "",
        "tests/mutation_reasons.toml": "survivor = []\n",
    }.items():  # fmt: skip
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    for name in ("mutation.py", "mutation_operators.py"):
        (root / "tests" / name).write_text((pathlib.Path(__file__).parent / name).read_text())
    program(root, "reach")
    return root


def program(root: pathlib.Path, *arguments: str) -> str:
    """Its output, without the packages that a toy does not need."""
    code = "import mutation; mutation.IMPORTED = ('pytest',); mutation.main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "tests"), *filter(None, sys.path)])}
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--jobs=2"], cwd=root, capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_each_test_is_known_with_what_it_and_its_fixtures_reach(repository, monkeypatch):
    monkeypatch.setattr(mutation, "KEPT", repository / ".mutation")
    found = {test.name.partition("::")[2]: set(test.own) for test in mutation.tests()}
    assert found == {
        "test_double": {"t2t_keras/toy.py:double:0"},
        "test_a_sum": {"t2t_keras/toy.py:Sum.to:0"},
        "test_the_limit": set(),
    }


@pytest.mark.medium
def test_mutants_are_caught_by_the_tests_that_reach_them_and_survivors_reported(repository):
    pytest.importorskip("cosmic_ray")
    said = program(repository, "run", "--sample=1000")
    kept = {
        each["key"].partition(": ")[2]: each
        for each in map(json.loads, (repository / ".mutation/verdicts.jsonl").read_text().splitlines())
    }
    found = {key: each["verdict"] for key, each in kept.items()}
    assert found["return 2 * x -> return 2 + x"] == "survived"  # The tests double 2.
    assert found["return 2 * x -> return 2 / x"] == found["first: int = 1 -> first: int = 2"] == "caught"
    assert found["if x > LIMIT: -> if True:"] == "caught"
    assert found["LIMIT = 3 -> LIMIT = 4"] == "caught"  # By a test that runs nothing of the package.
    assert found["if x > LIMIT: -> if False:"] == "survived"
    assert kept["return 2 * x -> return 2 / x"]["test"] == "tests/test_toy.py::test_double"
    assert len(found) == len(said.splitlines()) - 1
    assert program(repository, "run", "--sample=1000").startswith("0 mutants to run")
    (repository / "tests/mutation_reasons.toml").write_text(
        '[[survivor]]\nfile = "t2t_keras/toy.py"\nold = "return 2 * x"\nnew = "return 2 + x"\nwhy = "A toy."\n'
    )
    report = program(repository, "report", "--sample=1000")
    assert "  + return 2 + x" not in report and "  - if x > LIMIT:\n  + if False:" in report
