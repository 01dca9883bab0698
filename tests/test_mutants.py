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


@pytest.mark.slow
def test_every_fault_is_caught():
    verdicts = mutants.run()
    assert {name: found for name, found in verdicts.items() if not found.startswith("caught")} == {}
