"""BUILD mirrors the import graph; import-linter checks its direction (`pyproject.toml`). `python tests/test_build.py` writes BUILD anew."""

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
    "keras_hub": "keras-hub",
    "matplotlib": "matplotlib",
    "num2words": "num2words",
    "numpy": "numpy",
    "pytest": "pytest",
    "requests": "requests",
    "rouge_score": "rouge-score",
    "sacrebleu": "sacrebleu",
    "sacremoses": "sacremoses",
    "selenium": "selenium",
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
FOLDERS = ("t2t_keras", "tools", "benchmarks", "tests")


def modules() -> list[pathlib.Path]:
    """All Python files but empty ones."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.stat().st_size)


def dotted(path: pathlib.Path) -> str:
    """t2t_keras/model/attention.py → t2t_keras.model.attention; tests import each other by their bare names."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "tests" else parts[:-1] if parts[-1] == "__init__" else parts)


def target(path: pathlib.Path) -> str:
    """t2t_keras/model/attention.py → model_attention; tools/train.py → tools_train; tests keep their names."""
    return dotted(path).removeprefix("t2t_keras.").replace(".", "_")


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
    files = {dotted(other): target(other) for other in modules()}
    own, others = set(), set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] in PACKAGES:
            others.add(PACKAGES[parts[0]])
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        own |= {files[prefix] for prefix in list(prefixes) if prefix in files and (prefix != "t2t_keras" or name == prefix)}
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
        rule = "py_test" if is_test else "py_binary" if path.parent.name in ("tools", "benchmarks") else "py_library"
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
        if (ROOT / file).with_suffix(".html").exists():  # A page's template.
            lines.append(f'    data = ["{file.with_suffix(".html")}"],')
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


if __name__ == "__main__":
    sys.exit((ROOT / "BUILD").write_text(rendered(), encoding="utf-8") and 0)
