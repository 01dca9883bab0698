"""The notebooks of the course, docs/course/: kept with outputs, of cells that ran in order; and, slow, what a new run
finds.
"""

import ast
import importlib
import os
import pathlib
import re

import nbclient
import nbformat
import pytest
from test_docs import anchors

ROOT = pathlib.Path(__file__).parent.parent
COURSE = ROOT / "docs/course"
NOTEBOOKS = sorted(COURSE.glob("*.ipynb"))
LOCAL = re.compile(r"(?<![\w.:/])/(?:content|home|mnt|opt|root|tmp|usr|var|work|Users)/")
# What the text of each notebook says of the values of its variables.
CLAIMS = {
    "1_recurrent_translator": ("bleu > 90", "exact > 0.8", "agree >= 18", "not all(strange_right)",
                               "pieces[0] == '▁der'"),
    "2_attention": ("min(bleu['rnn'][:5]) > 90", "max(bleu['without_attention'][2:]) < 20",
                    "bleu['rnn'][-1] < bleu['rnn'][4] - 5", "right_share > 0.5", "accuracy['scaled'][-1] > 0.95",
                    "sum(accuracy['scaled']) > max(sum(accuracy['additive']), sum(accuracy['unscaled']))"),
    "3_transformer": ("closed[4] > 0.1 and max(closed_scaled) < 0.01", "bleu > 80", "exact > 0.6"),
    "4_ablations": ("max(base) / min(base) > 1.05", "perplexity['1 layer'] < min(base)",
                    "perplexity['learned positions'] < min(base)", "idle > 0.75"),
    "5_bert": ("figures['masked_words'] > figures['bigram'] > figures['unigram']", "kind_share > 0.9",
               "same_kind['after'] > 0.9 > same_kind['before']", "accuracy['pretrained', 'new nouns'] > 0.8",
               "max(accuracy[system, 'new nouns'] for system in ('random weights', 'bag of words')) < 0.6",
               "min(accuracy[system, 'labelled nouns'] for system in systems) > 0.9"),
}  # fmt: skip


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request) -> pathlib.Path:
    return request.param


@pytest.fixture
def notebook(path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def code(notebook) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook) -> list[nbformat.NotebookNode]:
    return [output for cell in code(notebook) for output in cell.outputs]


def programs(notebook) -> list[ast.Module]:
    """The code without the magics of Jupyter."""
    return [ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell.source, flags=re.MULTILINE)) for cell in code(notebook)]


def test_a_notebook_is_valid_and_installs_the_package_from_its_clone(path, notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    first = notebook.cells[0].source
    assert first.startswith(f"# {path.stem[0]}. ") and "colab" not in first, "there is no public repository to open"
    [install] = [cell.source for cell in code(notebook) if "pip install" in cell.source]
    assert install == code(notebook)[0].source and 'if importlib.util.find_spec("t2t_keras") is None:' in install
    assert re.search(r'%pip install --quiet "?\.\./\.\.("|\[classifiers\]"|  #)', install)


def test_all_cells_have_run_in_order(notebook):
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))


def test_outputs_are_pictures_and_text_without_errors_and_noise(notebook):
    found = outputs(notebook)
    assert any("image/png" in output.get("data", {}) for output in found)
    assert {output.output_type for output in found} <= {"stream", "display_data", "execute_result"}
    assert not [output.text for output in found if output.get("name") == "stderr"]
    assert not re.search(r"WARNING|Warning|INFO:|Traceback", "".join(output.get("text", "") for output in found))


def test_no_path_of_a_machine_is_in_a_notebook(notebook):
    texts = [cell.source for cell in notebook.cells] + [output.get("text", "") for output in outputs(notebook)]
    data = (item for output in outputs(notebook) for item in output.get("data", {}).items())
    texts += [str(value) for kind, value in data if not kind.startswith("image/")]
    assert [text for text in texts if LOCAL.search(text)] == []


def test_all_that_a_notebook_imports_exists(notebook):
    for program in programs(notebook):
        for node in ast.walk(program):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name) or importlib.import_module(f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "t2t_keras":
                assert hasattr(importlib.import_module("t2t_keras"), node.attr), node.attr


def test_the_links_of_a_notebook_lead_somewhere(notebook):
    markdown = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)\s]+)\)", markdown):
        target, _, anchor = link.partition("#")
        assert link.startswith("https://") or (COURSE / target).exists(), link
        assert link.startswith("https://") or not anchor or anchor in anchors(COURSE / target), link


def test_the_page_of_the_course_has_each_notebook_in_order_and_its_links_exist():
    page = (COURSE / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d_\w+\.ipynb)\)", page) == [path.name for path in NOTEBOOKS]
    assert "jupyter execute --inplace docs/course/*.ipynb" in page


def test_the_course_is_small():
    sizes = {path.name: path.stat().st_size for path in NOTEBOOKS}
    assert max(sizes.values()) < 800_000 and sum(sizes.values()) < 2_000_000, sizes


def test_every_notebook_has_claims_to_check():
    assert CLAIMS.keys() == {path.stem for path in NOTEBOOKS}


def test_the_ablations_say_first_where_they_differ_from_the_paper():
    """What is said there are claims that a run checks."""
    first = nbformat.read(COURSE / "4_ablations.ipynb", as_version=4).cells[0].source.splitlines()[2]
    assert first.startswith("**Its results differ from the paper's:**")
    assert "one layer is better than two, learned positions are better than sinusoids" in first
    claims = {f"perplexity['{name}'] < min(base)" for name in ("1 layer", "learned positions")}
    assert claims < set(CLAIMS["4_ablations"])


def test_the_notebook_that_needs_scikit_learn_installs_and_the_page_names_it():
    [bert] = [nbformat.read(path, as_version=4) for path in NOTEBOOKS if "bag_of_words" in path.read_text("utf-8")]
    assert '%pip install --quiet "../..[classifiers]"' in code(bert)[0].source
    page = (COURSE / "README.md").read_text(encoding="utf-8")
    assert "needs scikit-learn, the extra `classifiers`" in " ".join(page.split())
    assert '"classifiers": ["scikit-learn' in (ROOT / "setup.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_notebook_runs_from_top_to_bottom_and_finds_what_its_text_says(path, notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    claims = f"print([claim for claim in {CLAIMS[path.stem]!r} if not eval(claim)])"
    notebook.cells.append(nbformat.v4.new_code_cell(claims))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=resources).execute()
    assert notebook.cells[-1].outputs[0].text == "[]\n"
    assert not [output.text for output in outputs(notebook) if output.get("name") == "stderr"]
