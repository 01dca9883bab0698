"""BUILD mirrors the import graph, and imports run one way. `python tests/test_build.py` writes BUILD anew."""

import ast
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# The third-party packages of setup.py by the names they are imported by.
PACKAGES = {
    "absl": "absl-py",
    "apache_beam": "apache-beam",
    "grpc": "grpcio",
    "ctranslate2": "ctranslate2",
    "keras": "keras",
    "num2words": "num2words",
    "numpy": "numpy",
    "pytest": "pytest",
    "requests": "requests",
    "rouge_score": "rouge-score",
    "sacrebleu": "sacrebleu",
    "sacremoses": "sacremoses",
    "sentencepiece": "sentencepiece",
    "tensorboard": "tensorboard",
    "tensorflow": "tensorflow",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
    "torch": "torch",
    "tqdm": "tqdm",
    "yaml": "pyyaml",
    "transformers": "transformers",
}
NETWORK = {
    "attention",
    "bias",
    "constants",
    "dense",
    "dropout",
    "embedding",
    "feed_forward",
    "gradient",
    "layer_norm",
    "loss",
    "optimizer",
    "position",
    "stacks",
    "transformer",
}


def modules() -> list[pathlib.Path]:
    return sorted(path for folder in ("t2t_keras", "tools", "tests") for path in (ROOT / folder).glob("*.py"))


def target(path: pathlib.Path) -> str:
    """t2t_keras/attention.py → attention; tools and tests keep their folder."""
    if path.parent.name == "t2t_keras":
        return "t2t_keras" if path.stem == "__init__" else path.stem
    return f"{path.parent.name}_{path.stem}" if path.parent.name == "tools" else path.stem


def imported(path: pathlib.Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dependencies(path: pathlib.Path) -> tuple[list[str], list[str]]:
    """Targets of ours, and packages of others, that a file imports."""
    files = {f"{other.parent.name}.{other.stem}" if other.stem != "__init__" else other.parent.name: target(other) for other in modules()}
    bare = {other.stem: target(other) for other in modules() if other.parent.name == "tests"}
    own, others = set(), set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] in PACKAGES:
            others.add(PACKAGES[parts[0]])
        for known in (".".join(parts[:2]), parts[0]):
            if known in files or (known in bare and path.parent.name == "tests"):
                own.add(files.get(known) or bare[known])
                break
    return sorted(own - {target(path)}), sorted(others)


def rendered() -> str:
    """BUILD as it has to be, in buildifier's form."""
    blocks = [
        '"""A target for every module, program and test; tests/test_build.py holds it to the imports."""',
        'load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")',
        'package(default_visibility = ["//visibility:public"])',
        'filegroup(\n    name = "configs",\n    srcs = glob(["configs/*.flags"]),\n)',
    ]
    for path in modules():
        name, file = target(path), path.relative_to(ROOT)
        is_test = path.stem.startswith("test_")
        rule = "py_test" if is_test else "py_binary" if path.parent.name == "tools" else "py_library"
        own, others = dependencies(path)
        if is_test:
            own = sorted({*own, "conftest"})
        needs = [f'":{dependency}"' for dependency in own] + [f'"@pypi//{dependency}"' for dependency in others]
        lines = [f'    name = "{name}",']
        if is_test:
            lines.append('    size = "medium",')
        lines.append(f'    srcs = ["{file}"],')
        if rule == "py_binary":
            lines += ['    data = [":configs"],']
        if rule != "py_library":
            lines.append(f'    main = "{file}",')
        if len(needs) == 1:
            lines.append(f"    deps = [{needs[0]}],")
        elif needs:
            lines += ["    deps = [", *(f"        {need}," for need in needs), "    ],"]
        blocks.append("\n".join([f"{rule}(", *lines, ")"]))
    return "\n\n".join(blocks) + "\n"


def test_build_has_a_target_for_every_module_and_test_with_its_real_dependencies():
    assert (ROOT / "BUILD").read_text(encoding="utf-8") == rendered(), "run: python tests/test_build.py"


def test_buildifier_finds_nothing_to_change_in_build():
    if not shutil.which("npx"):
        pytest.skip("npm is not installed, so buildifier is not to be had")
    command = ["npx", "--yes", "@bazel/buildifier", "--mode=check", "--lint=off", str(ROOT / "BUILD")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "npm error" in result.stderr:
        pytest.skip(f"buildifier could not be fetched: {result.stderr.splitlines()[0]}")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_network_is_keras_ops_only_so_that_it_runs_on_every_backend():
    for name in NETWORK:
        roots = {imported_name.split(".")[0] for imported_name in imported(ROOT / f"t2t_keras/{name}.py")}
        assert roots <= {"keras", "math", "collections", "dataclasses", "threading", "typing", "t2t_keras"}, name


def test_imports_run_one_way():
    """No module imports, even through others, a module that imports it; tools are at the top, config at the bottom."""
    graph = {target(path): set(dependencies(path)[0]) for path in modules() if path.parent.name != "tests"}

    def reached(name: str, seen: frozenset) -> set[str]:
        return set().union(*({other} | reached(other, seen | {other}) for other in graph[name] if other not in seen))

    for name in graph:
        assert name not in reached(name, frozenset()), name
    assert not graph["config"]
    assert not graph["beam_search"]
    assert graph["training"].isdisjoint({"transformer", "tokenizer", "beam_search", "translator"})
    assert all(not other.startswith("tools_") for name in graph if not name.startswith("tools_") for other in graph[name])


if __name__ == "__main__":
    sys.exit((ROOT / "BUILD").write_text(rendered(), encoding="utf-8") and 0)
