"""The script of the best Multi30k model runs the programs with the right texts, in the right order."""

import itertools
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SETS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
CHECKED = ["grid", "evaluate"]  # Whose flags are checked first.
TEACHERS = ["train", "train", "translate", "translate"]  # The programs that one teacher of each direction needs.
# What is scored of seeds 4 and 7 after the training, and with which runs.
SCORED = {"Seed 4, reranked": (4,), "Seed 7, reranked": (7,), "Ensemble": (4, 7), "Ensemble, reranked": (4, 7)}
# Notes its arguments, and writes the output of translate.py. It ends with an error if its arguments have the text of a
# file "fails".
PYTHON = """#!/usr/bin/env bash
printf '%q ' "$@" >> "$(dirname "$0")/commands"
echo >> "$(dirname "$0")/commands"
[[ ! -e "$(dirname "$0")/fails" || $* != *"$(< "$(dirname "$0")/fails")"* ]] || exit 75
for each in "$@"; do
    file=${each#--output=}
    [[ $file == "$each" ]] || { mkdir -p "$(dirname "$file")"; echo translated > "$file"; }
done
"""


@pytest.fixture
def script(tmp_path):
    """Runs the script with arguments, and returns its result and the flags of each command, by name, after the
    program's.
    """
    text = tmp_path / "text"
    text.mkdir()
    for name in SETS:
        for language in ("en", "fr"):
            (text / f"{name}.{language}").write_text(f"{name} {language}\n")
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run(*arguments):
        command, environment = [ROOT / "benchmarks/best_multi30k.sh", *arguments], os.environ | {"PYTHON": str(python)}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        noted = tmp_path / "commands"
        commands = map(shlex.split, noted.read_text().splitlines() if noted.exists() else [])
        found = [(program, [flag.removeprefix("--") for flag in given]) for program, *given in commands]
        noted.unlink(missing_ok=True)
        return result, found

    return run


def values(given: list[str], name: str) -> list[str]:
    """The values of a flag, with the folders as their last names."""
    found = (flag.partition("=")[2].split(",") for flag in given if flag.startswith(f"{name}="))
    return [pathlib.Path(part).name for parts in found for part in parts]


def test_it_trains_translates_and_trains_with_all_of_it(script, tmp_path):
    result, commands = script("text", "out", "en", "fr", "4,7")
    assert result.returncode == 0, result.stderr
    programs = [pathlib.Path(program).stem for program, _ in commands]
    assert programs == [*CHECKED, *TEACHERS * 3, "grid", *["evaluate"] * 4 * len(SCORED)]
    given = [flags for _, flags in commands][len(CHECKED) :]
    of_teachers = itertools.product((1, 2, 3), ("train", "translate"), [("en", "fr"), ("fr", "en")])
    for flags, (seed, program, (source, target)) in zip(given[:12], of_teachers, strict=True):
        assert f"model_dir={tmp_path}/out/{source}_{target}/seed{seed}" in flags
        if program == "train":
            assert f"seed={seed}" in flags
            for side, language in (("source", source), ("target", target)):
                assert values(flags, f"train_{side}") == [f"train.{language}"]
                assert values(flags, f"valid_{side}") == [f"val.{language}"]
            assert {"flagfile=multi30k_en_de", "norm=pre", "train_steps=3200", "cooldown_steps=1200"} <= set(flags)
            assert {"dtype=bfloat16", "warmup_steps=1000", "learning_rate_factor=1.79"} <= set(flags)
        else:
            assert values(flags, "input") + values(flags, "output") == [f"train.{source}", f"seed{seed}.{target}"]
            assert {"checkpoint=latest", "beam_size=5", f"alpha={1.6 if source == 'en' else 1.0}"} <= set(flags)
    grid = given[12]
    assert "flagfile=multi30k_en_de_best" in grid and values(grid, "output_dir") == ["students"]
    assert values(grid, "valid_source") + values(grid, "valid_target") == ["val.en", "val.fr"]
    pairs = list(zip(values(grid, "train_source"), values(grid, "train_target"), strict=True))
    of_seeds = [pair for seed in (1, 2, 3) for pair in (("train.en", f"seed{seed}.fr"), (f"seed{seed}.en", "train.fr"))]
    assert pairs == [("train.en", "train.fr"), *of_seeds]
    assert f"subwords_file={tmp_path}/out/en_fr/seed1/subwords.model" in grid and "seeds=4,7" in grid
    assert values(grid, "test_source") == [f"{name}.en" for name in SETS[2:]]
    assert values(grid, "test_target") == [f"{name}.fr" for name in SETS[2:]]
    names = [f"{title}, {name}:" for title in SCORED for name in SETS[1:]]
    assert result.stdout.splitlines() == names
    for flags, (title, name) in zip(given[13:], itertools.product(SCORED, SETS[1:]), strict=True):
        runs = ",".join(f"{tmp_path}/out/students/base/seed{seed}" for seed in SCORED[title])
        assert f"model_dir={runs}" in flags
        assert values(flags, "source") + values(flags, "reference") == [f"{name}.en", f"{name}.fr"]
        assert {"lowercase", "tokenize=none", "checkpoint=latest"} <= set(flags) & set(grid)
        reranking = {f"rerank_with={tmp_path}/out/fr_en/seed1", "rerank_direction=backward", "rerank_weight=0.2"}
        reranking.add("beam_size=10")
        assert set(flags) & reranking == (reranking if "reranked" in title else set())


def test_what_is_translated_is_not_translated_again(script):
    assert "translate" in str(script("text", "out", "en", "fr")[1])
    result, commands = script("text", "out", "en", "fr")
    assert result.returncode == 0
    assert [pathlib.Path(program).stem for program, _ in commands][:9] == [*CHECKED, *["train"] * 6, "grid"]
    assert "seeds=1,2,3" in commands[8][1]


@pytest.mark.parametrize(
    ("fails", "ran"),
    [("train.py", 3), ("translate.py", 5), ("grid.py --flagfile", 15), ("evaluate.py --model_dir", 16)],
)
def test_it_ends_with_a_program_that_fails(script, tmp_path, fails, ran):
    (tmp_path / "fails").write_text(fails)
    result, commands = script("text", "out", "en", "fr")
    assert (result.returncode, len(commands)) == (75, ran) and commands[-1][0].endswith(fails.partition(" ")[0])


@pytest.mark.parametrize(("program", "ran"), [("grid.py", 1), ("evaluate.py", 2)])
def test_wrong_flags_end_it_before_it_trains(script, tmp_path, program, ran):
    (tmp_path / "fails").write_text(f"{program} --only_check_args")
    result, commands = script("text", "out", "en", "fr", "1", "--tokenise=13a")
    assert (result.returncode, len(commands)) == (75, ran) and "tokenise=13a" in commands[-1][1]


@pytest.mark.parametrize("given", [["grid"], ["evaluate", "--reference=text"]])
def test_flags_are_checked_without_a_run(given):
    program, *flags = given
    command = [sys.executable, ROOT / f"tools/{program}.py", "--only_check_args", *flags]
    wanted = "--tokenize=none", "--tokenise=none"
    right, wrong = (subprocess.run([*command, flag], capture_output=True, text=True) for flag in wanted)
    assert (right.returncode, right.stdout, wrong.returncode) == (0, "", 1)
    assert "Unknown command line flag 'tokenise'" in wrong.stderr


def test_one_seed_has_no_ensemble(script):
    result, commands = script("text", "out", "en", "fr", "3")
    assert [pathlib.Path(program).stem for program, _ in commands][14:] == ["grid", *["evaluate"] * 4]
    assert "Seed 3, reranked, val:" in result.stdout and "Ensemble" not in result.stdout


def test_flags_for_the_scores_replace_those_for_lower_cased_text(script):
    scores = script("text", "out", "en", "fr", "4,7", "--tokenize=13a", "--alpha=1.4")[1][14:]
    assert len(scores) == 17
    for _, flags in scores:
        assert {"tokenize=13a", "alpha=1.4"} <= set(flags) and not {"lowercase", "tokenize=none"} & set(flags)


def test_what_is_wrong_is_reported_before_anything_runs(script, tmp_path):
    for language, missing in (("xx", "test_2017_mscoco"), ("yy", "val")):
        for name in SETS:
            if name != missing:
                (tmp_path / "text" / f"{name}.{language}").touch()
    for arguments, said in (
        (("text",), "Usage:"),
        (("text", "out", "en"), "Usage:"),
        (("text", "out"), f"Expected {tmp_path}/text/train.de. It is missing."),
        (("text", "out", "en", "xx"), f"Expected {tmp_path}/text/test_2017_mscoco.xx. It is missing."),
        (("text", "out", "yy", "en"), f"Expected {tmp_path}/text/val.yy. It is missing."),
        (("no/text", "out"), f"Expected {tmp_path}/no/text/train.en. It is missing."),
        (("text", "out", "en", "fr", "1, 2"), "Expected SEEDS to be whole numbers, as in 1,2,3. Received: 1, 2."),
        (("text", "out", "en", "fr", "1,2,1"), "Expected different SEEDS. Received: 1,2,1."),
    ):
        result, commands = script(*arguments)
        assert (result.returncode, commands) == (1, [])
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
