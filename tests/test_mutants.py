"""The list of faults in `mutants.py` fits the code; and, when slow tests are asked for, every fault is caught."""

import re

import mutants
import pytest


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_applies_to_the_code_and_names_tests_that_exist(mutant):
    text = (mutants.ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    changed = text.replace(mutant.old, mutant.new)
    assert changed != text
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec")
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("[")[0].partition("::")
        assert re.search(rf"^def {name}\(", (mutants.ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_every_fault_has_a_name_of_its_own():
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names)


PROGRAM = "ANSWER = 42\n"
TESTS = """
import program, time
def test_that_fails(): assert program.ANSWER == 42
def test_that_passes(): pass
def test_that_hangs(): time.sleep(600 * (program.ANSWER != 42))
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [("fails", "caught"), ("passes", "survived"), pytest.param("hangs", "timed out", marks=pytest.mark.medium)],
)
def test_a_fault_is_caught_only_where_a_test_fails(tmp_path, monkeypatch, test, expected):
    """A test that runs out of time may only be slow."""
    monkeypatch.setattr(mutants, "TIMEOUT", 5 if expected == "timed out" else 300)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_program.py").write_text(TESTS)
    fault = mutants.Mutant("another answer", "program.py", "42", "41", (f"test_program.py::test_that_{test}",))
    assert mutants.verdict(fault, tmp_path) == expected
    assert (tmp_path / "program.py").read_text() == PROGRAM


@pytest.mark.medium
def test_tests_that_fail_without_a_fault_are_reported(tmp_path, monkeypatch):
    """They may take longer than those of one fault."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "TIMEOUT", 0.001)
    (tmp_path / "program.py").write_text("ANSWER = 41\n")
    (tmp_path / "test_program.py").write_text(TESTS)
    fault = mutants.Mutant("another answer", "program.py", "41", "40", ("test_program.py::test_that_fails",))
    with pytest.raises(RuntimeError, match="(?s)pass without a fault.*test_that_fails"):
        mutants.run([fault])


@pytest.mark.slow
def test_every_fault_is_caught():
    verdicts = mutants.run()
    assert {name: found for name, found in verdicts.items() if found != "caught"} == {}
