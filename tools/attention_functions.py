"""Compares the attention functions of section 3.2.1: time, memory, and softmax and training against d_k. Run again, it
resumes.

python tools/attention_functions.py --flagfile=quickstart --train_steps=400 --cooldown_steps=0 \\
    --output_dir=runs/attention_functions
python tools/attention_functions.py --flagfile=quickstart --train_steps=400 --cooldown_steps=0 --widths=8,32,128 \\
    --output_dir=runs/three
"""

import os
import pathlib

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program, training
from t2t_keras.config import ATTENTION_FUNCTIONS
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start

_WIDTHS = flags.DEFINE_list("widths", ["8", "16", "32", "64", "128"], "Values of d_k; a model has d_model / d_k heads.")
_LENGTHS = flags.DEFINE_list(
    "lengths", ["64", "128", "256", "512"], "Sequence lengths, n, of time and memory; 512 takes 2 GB."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of measurements of each time.", lower_bound=1)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "runs/attention_functions", "Folder of the measurements, the picture and the runs."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "", "Folder of prepared data, or where to prepare it; empty: output_dir/data."
)
_SET_HERE = ("attention", "num_heads", "d_k", "d_v")
options.define(*run_options.groups_of().values())


def _start(function: str, d_k: int, output_dir: pathlib.Path) -> Start:
    """Returns the start of a run. Its options are the function and d_k, then the given ones, then the defaults."""
    given, sources = options.given(*run_options.groups_of().values()), options.sources()
    if wrong := [f"--{name}" for name in _SET_HERE if sources.get(name) == "command line"]:
        raise ValueError(f"This program sets {', '.join(_SET_HERE)}. Leave out {', '.join(wrong)}.")
    data_dir = os.path.expanduser(_DATA_DIR.value) or output_dir / "data"
    d_model = flags.FLAGS["d_model"].value
    if d_model % d_k:
        raise ValueError(f"--widths must divide d_model={d_model}. Received: {d_k}.")
    of_run = {"attention": function, "num_heads": d_model // d_k, "d_k": d_k, "d_v": d_k}
    return Start.open(output_dir / f"{function}_{d_k}", given | of_run, str(data_dir), sources, resumes=False)


def measure() -> None:
    output_dir = pathlib.Path(_OUTPUT_DIR.value).expanduser()
    widths, lengths = options.positive_numbers(_WIDTHS), options.positive_numbers(_LENGTHS)
    starts = {(function, d_k): _start(function, d_k, output_dir) for d_k in widths for function in ATTENTION_FUNCTIONS}
    training.check(*starts.values())
    runs = {name: start.options for name, start in starts.items()}
    with program.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.experiments import attention_functions, table1
        from t2t_keras.reporting import figures
        from t2t_keras.training import devices

    strategy = devices.make_strategy(1, next(iter(runs.values())).train)
    settings = table1.Settings()
    results = attention_functions.measure(
        settings, lengths, _ROUNDS.value, runs, output_dir, strategy=strategy, quiet=program.without_noise
    )
    print(f"{results['machine']}; cost: {settings.heads} heads, d_k = {settings.d // settings.heads}.")
    print(f"\n{attention_functions.tables(results)}")
    figures.save(attention_functions.picture(results), output_dir / "attention_functions.png")


def main() -> None:
    training.run(measure)


if __name__ == "__main__":
    main()
