"""What the documentation says is so: its links, files and flags exist, its Python runs; and the wheel holds all that it
needs.
"""

import ast
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import transformers_models as models
from mutants import copy_repository
from test_config import GROUPS as OPTIONS
from test_paper import TABLE_2

import t2t_keras
from t2t_keras.cli import flags as cli_flags
from t2t_keras.config import SampleConfig, paper
from t2t_keras.runs import registry, run_options

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# Written by version 0.1.0; see tests/data/README.md.
RUN_1 = ROOT / "tests/data/run_1"
EXAMPLES = [README, *(ROOT / f"docs/{name}.md" for name in ("python", "attention", "parsing", "architecture"))]


def text_of(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(page: pathlib.Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cells_of(page: str) -> list[list[str]]:
    lines = text_of(ROOT / "docs" / page).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_readme_has_at_most_150_lines():
    assert len(text_of(README).splitlines()) <= 150


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "serving/README.md", ROOT / "tests/data/README.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_link_and_picture_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_linked_from_the_readme():
    links = set(re.findall(r"\]\(([\w/]+\.md)", text_of(README)))
    assert {page.relative_to(ROOT).as_posix() for page in PAGES[1:]} <= links


def test_pictures_are_small():
    pictures = list((ROOT / "docs/pictures").iterdir())
    assert len(pictures) == 14
    assert all(picture.stat().st_size < 200_000 for picture in pictures)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page):
    folders = (ROOT, ROOT / "t2t_keras", ROOT / "tests", ROOT / "tools", ROOT / "docs")
    for name in re.findall(r"(?<![\w/])((?:[a-z_]\w*/)*[a-z]\w*\.(?:py|sh|flags))\b", text_of(page)):
        assert any((folder / name).exists() for folder in folders), name
    for name in re.findall(r"`((?:t2t_keras|tools|configs|tests|docs)/[\w/]*)`", text_of(page)):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"wmt14_en_\w+|multi30k_\w+", text_of(page)):
        assert (ROOT / f"configs/{name}.flags").exists(), name


def test_every_flag_that_a_page_names_is_one():
    known = {field.name for group in OPTIONS.values() for field in dataclasses.fields(group)}
    known |= {field.name for field in dataclasses.fields(SampleConfig)}
    for folder in ("tools", "benchmarks", "t2t_keras/cli"):
        for program in (ROOT / folder).glob("*.py"):
            known |= set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', text_of(program)))
    for program in ("tests/mutation.py", "benchmarks/joeynmt_minutes.py"):
        known |= set(re.findall(r'add_argument\("--(\w+)"', text_of(ROOT / program)))
    known |= {"help", "helpfull", "flagfile", "logdir", run_options.ARCHITECTURE, *cli_flags._DIVISORS}
    of_others = re.compile(
        r'--beam_options="[^"]*"|python -m apache_beam.*|serving/serve.sh .*|ghz .*|sacrebleu -t .*|pip install .*|'
        r"TF_XLA_FLAGS=\S*"
    )
    for page in PAGES:
        assert set(re.findall(r"--(\w+)", of_others.sub("", text_of(page)))) <= known, page


def test_every_guarantee_names_the_tests_that_check_it():
    table = re.search(r"\|---\|---\|\n(.*?)\n\n", text_of(ROOT / "docs/guarantees.md"), re.DOTALL)[1]
    rows = table.splitlines()
    assert len(rows) >= 14
    assert all("](../tests/test_" in row for row in rows)


def test_every_module_of_the_network_has_its_place_beside_the_paper():
    page = text_of(ROOT / "docs/paper.md")
    folders = (ROOT / "t2t_keras/layers", ROOT / "t2t_keras/model")
    modules = [path for folder in folders for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) > 20
    others = {"protocols.py", "ensemble.py", "bert.py", "inference.py"}  # Not of the paper.
    missing = [path for path in modules if f"`{path.parent.name}/{path.name}`" not in page]
    assert {path.name for path in missing} <= others


def test_every_module_says_what_it_has():
    modules = [path for path in (ROOT / "t2t_keras").rglob("*.py") if path.name != "__init__.py"]
    assert len(modules) > 40
    assert [path for path in modules if not ast.get_docstring(ast.parse(text_of(path)))] == []


def test_the_page_on_architecture_has_the_layers_of_the_contract_and_every_package():
    layers = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"][0]["layers"]
    page = text_of(ROOT / "docs/architecture.md")
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", page, re.MULTILINE)
    assert [(int(number), re.findall(r"`(\w+)", names)) for number, names in rows] == [
        (len(layers) - index, layer.split(" | ")) for index, layer in enumerate(layers)
    ]
    modules = (
        path for path in (ROOT / "t2t_keras").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    )
    packages = {path.stem for path in modules} - {"__init__"}
    described = re.findall(r"^\| `(\w+)(?:/|\.py)` \|[^|]*\|[^|]+\|$", page, re.MULTILINE)
    assert sorted(described) == sorted(packages) == sorted(" | ".join(layers).split(" | "))


def test_the_parameters_in_the_page_on_table_3_are_those_of_the_rows():
    found = {row[0]: row[2:5] for row in cells_of("table3.md") if len(row) == 6 and row[0] in paper.TABLE_3}
    assert found.keys() == paper.TABLE_3.keys()
    for name, row in paper.TABLE_3.items():
        numbers = (f"{paper.model(name, **size).num_weights:,}" for size in ({}, {"vocab_size": 41_100}))
        assert found[name] == [*numbers, f"{row.parameters or ''}"]


def test_the_training_time_of_multi30k_is_that_of_the_measured_speeds_on_every_page():
    """Story: it had four values."""
    results, flags = text_of(ROOT / "docs/results.md"), text_of(ROOT / "configs/multi30k_en_de.flags")
    tokens, updates = (
        int(re.search(rf"^--{name}=(\d+)$", flags, re.MULTILINE)[1]) for name in ("batch_tokens", "train_steps")
    )
    speeds = re.findall(r"^\| t2t_keras \| ([\d,]+) \|", results, re.MULTILINE)[:2]
    seconds = [tokens / int(speed.replace(",", "")) for speed in speeds]  # Of an update in bfloat16 and in float32.
    bfloat16, float32 = (f"{updates * each / 3600:.1f}" for each in seconds)
    said, each = " ".join(results.split()), f"{seconds[0]:.2f} s in bfloat16 and {seconds[1]:.2f} s in float32"
    assert f"of {tokens:,} tokens a side, takes {each}, and all" in said
    assert f"all {updates:,} updates take {bfloat16} and {float32} hours" in said and f"[now {bfloat16} h]" in said
    assert f"the updates take about {bfloat16} hours" in flags


def test_the_page_on_table_3_counts_its_rows():
    page = text_of(ROOT / "docs/table3.md")
    asked = re.search(r"`--rows=([^`]+)`: 29,000", page)[1].split(",")
    section = page[page.index("rows on Multi30k") :]
    assert f"## {['Ten', 'Eleven', 'Twelve'][len(asked) - 10]} rows on Multi30k" in page
    assert re.findall(r"^\| (\w[\w.]*) \|", section[: section.index("Signature:")], re.MULTILINE)[1:] == asked


def test_the_page_on_cost_has_the_figures_of_table_2():
    def cost(flops: float | None) -> str:
        mantissa, exponent = f"{flops or 0:.1e}".split("e+")
        digits = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
        return f"{mantissa} · 10{exponent.lstrip('0').translate(digits)}" if flops else ""

    names = {system.name for system in TABLE_2}
    found = [row for row in cells_of("cost.md") if len(row) == 5 and row[0] in names]
    for row, system in zip(found, TABLE_2, strict=True):
        bleus = [f"{bleu or ''}" for bleu in (system.en_de, system.en_fr)]
        assert row == [system.name, *bleus, cost(system.en_de_flops), cost(system.en_fr_flops)]


def test_every_public_name_is_explained():
    page = text_of(ROOT / "docs/python.md")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    returned = {"TextTranslator", "Translation"}  # By functions; nobody calls them.
    # Called, or a base class.
    assert {name for name in t2t_keras.__all__ if not re.search(rf"t2t_keras\.{name}[()]", code)} == returned
    assert all(f"`{name}`" in page for name in t2t_keras.__all__)


@pytest.fixture
def user(tmp_path, monkeypatch) -> pathlib.Path:
    """The folder of somebody who tries the examples: a trained run, models of other toolkits, and text files."""
    import opennmt_models
    import test_tensor2tensor

    from t2t_keras.data import builtin_corpus

    for names in ("_architectures", "_tasks"):  # Examples register some.
        monkeypatch.setattr(registry, names, dict(getattr(registry, names)))
    for name in ("mine", "other"):
        shutil.copytree(RUN_1, tmp_path / "runs" / name)
    models.make(tmp_path / "models" / "opus")
    models.make(tmp_path / "models" / "nllb", "nllb")
    test_tensor2tensor.make(tmp_path / "models" / "ende")
    opennmt_models.make(tmp_path / "models" / "opennmt")
    for split, pairs in builtin_corpus.splits(2000, seed=1).items():
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_examples(page: pathlib.Path, slow: bool) -> int:
    """Runs the Python of a page in order, as one program. Slow blocks are marked."""
    blocks = re.findall(r"(<!-- slow -->\n)?```python\n(.*?)```", text_of(page), re.DOTALL)
    chosen = [block for mark, block in blocks if slow or not mark]
    program = {}
    for block in chosen:
        exec(compile(block, page.name, "exec"), program)
    return len(chosen)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("page", "number"), zip(EXAMPLES, (1, 14, 1, 1, 7), strict=True), ids=lambda value: getattr(value, "name", "")
)
def test_the_examples_run(user, page, number):
    assert run_examples(page, slow=False) >= number


@pytest.mark.slow
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.name)
def test_the_examples_that_train_and_export_run_too(user, page):
    run_examples(page, slow=True)


@pytest.mark.medium
def test_a_model_of_version_0_1_still_loads_and_has_the_score_that_it_had_then():
    assert t2t_keras.load(RUN_1).score("one", "eins") == pytest.approx(-11.72476, abs=1e-3)


@pytest.mark.slow
def test_a_model_of_version_0_1_still_exports(tmp_path):
    shutil.copytree(RUN_1, tmp_path / "run")
    t2t_keras.Run(tmp_path / "run").export(tmp_path / "export")
    sentences = ["one", "twenty-one", ""]
    assert t2t_keras.load(tmp_path / "export").translate(sentences) == t2t_keras.load(RUN_1).translate(sentences)


def test_the_source_distribution_and_its_wheel_hold_all_of_the_package_programs_and_configs_and_no_test(tmp_path):
    """Built from a copy, so that no build folder is left here, and without the network. Story: of the tests, the
    source distribution had the files that cannot run without the others.
    """
    copy = copy_repository(tmp_path / "copy")
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=120)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        assert not [name for name in files.getnames() if name.partition("/")[2].startswith(("tests", "docs"))]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(archive)]
    command = [sys.executable, "-m", "pip", "wheel", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path for pattern in ("*.py", "*.html") for path in (ROOT / "t2t_keras").rglob(pattern)]
    expected = {path.relative_to(ROOT).as_posix() for path in files}
    expected |= {f"t2t_keras_tools/{path.name}" for path in (ROOT / "tools").glob("*.py")}
    expected |= {f"t2t_keras_configs/{path.name}" for path in (ROOT / "configs").glob("*.flags")}
    assert expected <= names
    assert not any(name.startswith(("tests", "docs", "benchmarks")) for name in names)
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    commands = zipfile.ZipFile(wheel).read(entry_points).decode()
    for program in re.findall(r"`(t2t-[a-z-]+)`", text_of(README)):
        module = program.removeprefix("t2t-").replace("-", "_")
        assert f"{program} = t2t_keras_tools.{module}:main" in commands
    assert "t2t-quickstart = " in commands and "t2t-data-service = " in commands
    (metadata,) = (name for name in names if name.endswith("/METADATA"))
    assert "License-Expression: Apache-2.0\n" in zipfile.ZipFile(wheel).read(metadata).decode()


def test_everything_imported_is_installed_with_the_package():
    """tensorboard is not imported here, but `tf.summary` needs it and tensorflow 2.21 does not bring it."""
    from test_build import PACKAGES, imported

    setup = text_of(ROOT / "setup.py")
    required = set(re.findall(r'"([\w-]+)[\[><=]', setup.split("install_requires=[")[1].split("],")[0]))
    files = [*(ROOT / "t2t_keras").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
    roots = {name.split(".")[0] for file in files for name in imported(file)}
    extras = {
        "apache-beam", "ctranslate2", "gensim", "grpcio", "huggingface-hub", "langcodes", "py3langid", "pyyaml",
        "requests", "rouge-score", "safetensors", "scikit-learn", "tensorflow-serving-api", "torch", "transformers",
    }  # fmt: skip
    # TensorFlow brings them.
    needed = {PACKAGES[root] for root in roots if root in PACKAGES} - extras - {"ml-dtypes", "numpy", "protobuf"}
    assert needed | {"tensorboard"} <= required


def test_no_place_is_left_open():
    for path in [*PAGES, *(ROOT / "configs").glob("*.flags")]:
        assert not re.search(r"^(# )?RESULTS?$", text_of(path), re.MULTILINE), path


@pytest.mark.parametrize("path", sorted((ROOT / "tools").glob("*.py")), ids=lambda path: path.stem)
def test_each_command_of_a_programs_help_begins_a_line(path):
    """Story: wrapped paragraphs ran several commands into one."""
    before = ""
    for line in ast.get_docstring(ast.parse(path.read_text()), clean=False).splitlines():
        rest = line.removeprefix("python tools/workers.py 2 ")  # It starts a command.
        assert rest.rfind("python tools/") <= 0, line
        assert line.startswith("    --") == before.endswith("\\"), "A command over several lines can be pasted."
        before = line
