"""What the README says is so: its files exist, its Python runs, its flags are flags; and the wheel holds all it needs."""

import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, TrainConfig

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_file_of_its_tables_exists():
    names = re.findall(r"`(\w+\.py)`", README)
    assert len(names) > 40
    for name in names:
        assert any((ROOT / folder / name).exists() for folder in ("t2t_keras", "tests", "tools")), name


def test_every_program_and_config_it_names_exists():
    for name in re.findall(r"tools/[\w.]+", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"wmt14_en_\w+|multi30k_\w+", README):
        assert (ROOT / f"configs/{name}.flags").exists() or name == "multi30k_fr", name


def test_every_flag_it_names_is_one():
    known = {field.name for group in (ModelConfig, TrainConfig, DecodeConfig, DataConfig) for field in dataclasses.fields(group)}
    for program in [*(ROOT / "tools").glob("*.py"), ROOT / "t2t_keras/flags.py"]:
        known |= set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', program.read_text(encoding="utf-8")))
    known |= {"help", "flagfile", "logdir"}
    assert set(re.findall(r"--(\w+)", README)) <= known


def test_its_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "copy.keras").exists()


def test_the_wheel_holds_programs_and_configs(tmp_path):
    """Built from a copy, so that no build folder is left here, and without the network."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / "t2t_keras").glob("*.py")}
    expected |= {f"t2t_keras_tools/{path.name}" for path in (ROOT / "tools").glob("*.py")}
    expected |= {f"t2t_keras_configs/{path.name}" for path in (ROOT / "configs").glob("*.flags")}
    assert expected <= names
    assert not any(name.startswith("tests") for name in names)
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    commands = zipfile.ZipFile(wheel).read(entry_points).decode()
    assert "t2t-quickstart = t2t_keras_tools.quickstart:main" in commands
    assert "t2t-train = t2t_keras_tools.train:main" in commands and "t2t-data-service = t2t_keras_tools.data_service:main" in commands


def test_everything_imported_is_installed_with_the_package():
    """tensorboard is not imported here, but `tf.summary` needs it and tensorflow 2.21 does not bring it."""
    from test_build import PACKAGES, imported

    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    required = set(re.findall(r'"([\w-]+)[\[><=]', setup.split("install_requires=[")[1].split("],")[0]))
    files = [*(ROOT / "t2t_keras").glob("*.py"), *(ROOT / "tools").glob("*.py")]
    roots = {name.split(".")[0] for file in files for name in imported(file)}
    extras = {"apache-beam", "ctranslate2", "grpcio", "requests", "rouge-score", "tensorflow-serving-api", "torch", "transformers"}
    needed = {PACKAGES[root] for root in roots if root in PACKAGES} - extras - {"numpy"}  # TensorFlow brings numpy.
    assert needed | {"tensorboard"} <= required


def test_no_place_is_left_open():
    for path in [ROOT / "README.md", *(ROOT / "configs").glob("*.flags")]:
        assert not re.search(r"^(# )?RESULTS?$", path.read_text(encoding="utf-8"), re.MULTILINE), path
