"""Which tests a run chooses: those of all files are the small ones, and nothing is left out for good."""

import pathlib
import types

import conftest
import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize(("source", "given", "chosen"), [
    ("TESTPATHS", "", "not medium and not slow"),
    ("INVOCATION_DIR", "", "not medium and not slow"),
    ("ARGS", "", "not slow"),
    ("TESTPATHS", "slow", "slow"),
    ("ARGS", "medium", "medium"),
])  # fmt: skip
def test_a_run_of_all_files_has_the_small_tests_and_one_of_named_files_the_medium_ones_too(source, given, chosen):
    sources = pytest.Config.ArgsSource
    config = types.SimpleNamespace(
        option=types.SimpleNamespace(markexpr=given), ArgsSource=sources, args_source=sources[source]
    )
    conftest.pytest_configure(config)
    assert config.option.markexpr == chosen


def test_ci_runs_all_but_the_slow_ones():
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == 'exec ./tools/test.sh -m "not slow"'
