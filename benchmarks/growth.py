"""Measures how cost grows: training, data, checkpoints and decoding against all that makes them larger, beside what
theory expects.

    python benchmarks/growth.py --json=growth.json --output=docs/pictures    # tables in Markdown, and growth_*.png
    python benchmarks/growth.py --experiments=width,beam                     # some experiments

The first command again measures what is missing in its file.

The experiments are in `growth_experiments`. Each value is measured in a process of its own, so that memory is that of
the value alone (Linux only). Theory gives the form of a line, and its multiples are fitted to the measurements: a line
that leaves them shows what theory does not count. Besides this program the machine must be idle. All experiments take
about an hour on two cores.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile

from absl import flags

# `python benchmarks/growth.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.growth_experiments import data, decoding, recurrent, training
from benchmarks.growth_experiments.results import picture, table
from benchmarks.passes.process import progress
from t2t_keras.cli import program
from t2t_keras.system.files import write_whole
from t2t_keras.system.machine import cpu
from tools import workers

GROUPS = {
    "training": training.EXPERIMENTS,
    "data": data.EXPERIMENTS,
    "decoding": decoding.EXPERIMENTS,
    "recurrent": recurrent.EXPERIMENTS,
}
EXPERIMENTS = {name: experiment for group in GROUPS.values() for name, experiment in group.items()}

_EXPERIMENTS = flags.DEFINE_list("experiments", list(EXPERIMENTS), "Experiments to run.")
_JSON = flags.DEFINE_string("json", "", "File of the measurements; an existing one is extended. Empty keeps none.")
_OUTPUT = flags.DEFINE_string(
    "output", "", "Folder for the pictures, one for each kind of experiment; empty draws none."
)
_TASK = flags.DEFINE_string("task", "", "Internal: the measurement of a process, as JSON.")


def work(task: dict) -> None:
    """Makes a measurement and writes it to a file, with the index of this process in its name."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    with program.without_noise():
        from t2t_keras.training import devices

        found = EXPERIMENTS[task["experiment"]].measure(task["value"])
    pathlib.Path(f"{task['file']}.{index}").write_text(json.dumps(found), encoding="utf-8")
    devices.exit_worker(0)


def combined(results: list[dict]) -> dict:
    """Returns the measurement of processes that ran together: the sum of their memory, and the mean of all else."""
    return {
        name: (sum if name.endswith("bytes") else statistics.mean)([each[name] for each in results])
        for name in results[0]
    }


def measure(name: str, value: int) -> dict:
    """Makes a measurement in one or more processes of its own. Raises `ValueError` if one fails, which says why on
    stderr.
    """
    number = EXPERIMENTS[name].processes(value)
    # Importing `t2t_keras.cli.program` sets it. A process that inherits it takes it for the user's choice and hides
    # nothing else.
    environment = {variable: text for variable, text in os.environ.items() if variable != "TF_CPP_MIN_LOG_LEVEL"}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result"
        task = json.dumps({"experiment": name, "value": value, "file": str(file)})
        processes = workers.start(number, [sys.executable, __file__, f"--task={task}"], environment)
        try:
            code = workers.wait(processes)
        finally:  # They do not get the terminal's Ctrl-C.
            for process in processes:
                process.kill()
        if code:
            raise ValueError(f"The measurement of {name} at {value:,} failed with exit code {code}.")
        results = [pathlib.Path(f"{file}.{index}").read_text(encoding="utf-8") for index in range(number)]
        return combined(list(map(json.loads, results)))


def benchmark() -> None:
    if _TASK.value:
        return work(json.loads(_TASK.value))
    if unknown := set(_EXPERIMENTS.value) - set(EXPERIMENTS):
        raise ValueError(
            f"Expected --experiments among {', '.join(EXPERIMENTS)}. Received: {', '.join(sorted(unknown))}."
        )
    file = pathlib.Path(_JSON.value).expanduser() if _JSON.value else None
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
    machine = "{cpu}, {cores} cores".format(**cpu())
    results = {"machine": machine}
    if file and file.exists():
        results = json.loads(file.read_text(encoding="utf-8"))
    for name in _EXPERIMENTS.value:
        found = results.setdefault(name, {})
        for value in EXPERIMENTS[name].values:
            if str(value) not in found:
                if results["machine"] != machine:
                    raise ValueError(
                        f"Expected {file} to be of this machine, {machine}. Received: {results['machine']}."
                    )
                progress(f"{name}: {value:,} …")
                found[str(value)] = measure(name, value)
                if file:
                    write_whole(file, json.dumps(results, indent=1).encode())
    with program.without_noise():
        from t2t_keras.model import flops  # noqa: F401  The theory of training needs it.
    print(f"{results['machine']}.")
    for name in _EXPERIMENTS.value:
        print(f"\n{name}\n\n{table(EXPERIMENTS[name], results[name])}")
    if _OUTPUT.value:
        from t2t_keras.reporting import figures

        folder = pathlib.Path(_OUTPUT.value).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        for group, experiments in GROUPS.items():
            known = [name for name in experiments if results.get(name)]
            if measured := [(experiments[name], results[name]) for name in known]:
                figures.save(picture(measured), folder / f"growth_{group}.png")


if __name__ == "__main__":
    program.run(benchmark)
