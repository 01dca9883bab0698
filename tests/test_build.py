"""BUILD has each Python file in one library, which depends on what its files import. import-linter checks which way
(`pyproject.toml`).
"""

import ast
import collections
import graphlib
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# Third-party packages by the names they are imported by.
NAMES = """
    apache_beam cosmic_ray ctranslate2 flax gensim gevent huggingface_hub jax joeynmt keras keras_hub langcodes locust
    matplotlib mbrs ml_dtypes nbclient nbformat num2words numpy parso py3langid pytest requests rouge_score sacrebleu
    sacremoses safetensors selenium sentencepiece tensorboard tensorflow tensorflow_datasets tensorflow_text torch tqdm
    transformers werkzeug
"""
PACKAGES = {name: name.replace("_", "-") for name in NAMES.split()} | {
    "absl": "absl-py", "google": "protobuf", "grpc": "grpcio", "opennmt": "OpenNMT-tf", "sklearn": "scikit-learn",
    "tensorflow_serving": "tensorflow-serving-api", "yaml": "pyyaml",
}  # fmt: skip
FILES = sorted(
    path for folder in ("t2t_keras", "tools", "benchmarks", "docs", "tests") for path in (ROOT / folder).rglob("*.py")
)


def relative(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def glob(include: list[str], exclude: tuple = ()) -> list[str]:
    """Bazel's `glob`: each pattern has to match something."""
    paths = {pattern: ROOT.glob(pattern) for pattern in (*include, *exclude)}
    found = {pattern: {relative(path) for path in found if path.is_file()} for pattern, found in paths.items()}
    assert all(found.values()), found
    return sorted(set().union(*map(found.get, include)) - set().union(*map(found.get, exclude)))


def read_build() -> dict[str, dict]:
    """The targets of BUILD by name: their rules and arguments. Starlark is Python: the file runs with stand-ins for
    Bazel's functions.
    """
    targets = {}

    def rule(kind: str):
        def declare(name: str, **arguments) -> None:
            assert name not in targets, name
            targets[name] = {"rule": kind, **arguments}

        return declare

    names = {kind: rule(kind) for kind in ("py_binary", "py_library", "py_test")}
    names |= {"glob": glob, "load": lambda *_: None, "package": lambda **_: None}
    exec((ROOT / "BUILD").read_text(encoding="utf-8"), names)
    return targets


TARGETS = read_build()
LIBRARIES = {name: target for name, target in TARGETS.items() if target["rule"] == "py_library"}


def dotted(file: str) -> str:
    """t2t_keras/layers/attention.py → t2t_keras.layers.attention; tests import each other by their bare names."""
    return file.removesuffix(".py").removesuffix("/__init__").removeprefix("tests/").replace("/", ".")


OWNERS = {dotted(file): f":{name}" for name, target in LIBRARIES.items() for file in target["srcs"]}


def imported(path: pathlib.Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_by_name(path: pathlib.Path) -> set[str]:
    """Modules of ours that a file names in a string, as "module" or "module:name", to import them when they are
    used.
    """
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    strings = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {string.partition(":")[0] for string in strings if isinstance(string, str)} & OWNERS.keys()


def label(name: str) -> str:
    """The target that has what a dotted name imports; empty for Python's own modules. A `KeyError` is a package not in
    `PACKAGES`.
    """
    parts = name.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    own = next((OWNERS[prefix] for prefix in prefixes if prefix in OWNERS), "")
    return own or ("" if parts[0] in sys.stdlib_module_names else f"@pypi//{PACKAGES[parts[0]]}")


def test_every_python_file_is_in_one_library():
    number = collections.Counter(file for target in TARGETS.values() for file in target.get("srcs", ()))
    assert {file: number[file] for file in map(relative, FILES) if number[file] != 1} == {}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_depends_on_what_its_files_import(name):
    """Programs and tests depend on what the package imports by name, too."""
    names = {found for file in LIBRARIES[name]["srcs"] for found in imported(ROOT / file)}
    if any(target["deps"] == [f":{name}"] for target in TARGETS.values() if target["rule"] != "py_library"):
        by_name = [file for package in ("t2t_keras", "config", "runs") for file in LIBRARIES[package]["srcs"]]
        names |= {found for file in by_name for found in imported_by_name(ROOT / file)}
    needed, declared = {label(found) for found in names} - {"", f":{name}"}, set(LIBRARIES[name].get("deps", ()))
    assert needed - declared == set(), "dependencies that BUILD lacks"
    assert declared - needed == set(), "dependencies that nothing imports"


def test_no_library_depends_on_itself_through_others():
    graph = {f":{name}": target.get("deps", []) for name, target in TARGETS.items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())  # Raises CycleError.


def test_every_program_has_a_binary_and_every_test_file_a_test():
    candidates = [relative(path) for path in FILES if path.parent.name in ("benchmarks", "docs", "tools")]
    programs = [file for file in candidates if 'if __name__ == "__main__"' in (ROOT / file).read_text(encoding="utf-8")]
    binaries = {target["main_module"]: target["deps"] for target in TARGETS.values() if target["rule"] == "py_binary"}
    assert binaries == {dotted(file): [OWNERS[dotted(file)]] for file in programs}
    tests = {name: target["args"] for name, target in TARGETS.items() if target["rule"] == "py_test"}
    assert tests == {path.stem: [relative(path)] for path in (ROOT / "tests").glob("test_*.py")}


def test_libraries_have_the_files_that_they_read():
    assert LIBRARIES["cli"]["data"] == glob(["configs/*"])
    assert LIBRARIES["reporting"]["data"] + LIBRARIES["serving"]["data"] == glob(["t2t_keras/**/*.html"])
    needed = {"tests/data/run_1/config.json", "docs/paper.md", "README.md", "tools/venv.sh", ".ci/run"}
    assert needed <= set(LIBRARIES["tests"]["data"])


def test_buildifier_finds_nothing_to_change_in_build():
    if not shutil.which("npx"):
        pytest.skip("npm is not installed, so buildifier is not to be had")
    command = ["npx", "--yes", "@bazel/buildifier", "--mode=check", "--lint=off", str(ROOT / "BUILD")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if "npm error" in result.stderr:
        pytest.skip(f"buildifier could not be fetched: {result.stderr.splitlines()[0]}")
    assert result.returncode == 0, result.stdout + result.stderr
