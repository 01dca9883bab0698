"""Trains a Transformer: prepares the data, learns sub-words, trains and validates. Run again, it resumes.

python tools/train.py --train_source=a.en --train_target=a.de --valid_source=v.en --valid_target=v.de --model_dir=runs/x
python tools/train.py --flagfile=wmt14_en_de_base --model_dir=runs/base
python tools/train.py --model=table3/A16 --dataset=builtin --vocab_size=800 --model_dir=runs/a16      # A row of Table 3.
python tools/train.py --architecture=rnn --dataset=builtin --vocab_size=800 --model_dir=runs/rnn      # A recurrent translator.
python tools/train.py --model_dir=runs/base      # Resumes a run with its own options.
"""

import os
import pathlib
import sys

from absl import flags

from t2t_keras import checkpoint, run_folder
from t2t_keras.cli import flags as options
from t2t_keras.data import corpora
from t2t_keras.training import embeddings

_MODEL_DIR = flags.DEFINE_string("model_dir", None, "Folder of the run: options, sub-words, checkpoints, TensorBoard logs.", required=True)
_DATA_DIR = flags.DEFINE_string("data_dir", "", "Folder of prepared data, or where to prepare it; empty: the run's, or model_dir/data.")
_CPU_DEVICES = flags.DEFINE_integer(
    "cpu_devices", 1, "Number of virtual CPU devices to train on without a GPU, to try out several devices.", lower_bound=1
)
_DRY_RUN = flags.DEFINE_boolean("dry_run", False, "Prepare the data, run the largest micro-batches without changing any weight, and exit.")
options.define_run()
options.define_table_3()


def train() -> None:
    model_dir = pathlib.Path(_MODEL_DIR.value).expanduser()
    given, sources = options.with_table_3(options.given_run(), options.sources())
    chosen = run_folder.resolve(model_dir, given, os.path.expanduser(_DATA_DIR.value), sources)
    run_folder.check_has_text(model_dir, chosen)
    if chosen.data.train_source:
        corpora.check_files(chosen.data, chosen.task.texts)
    if chosen.train.embeddings and not checkpoint.kept(model_dir):
        embeddings.check(chosen)
    with options.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.training import devices, run

    strategy = devices.make_strategy(_CPU_DEVICES.value, chosen.train)
    run.train(model_dir, chosen, strategy=strategy, dry_run=_DRY_RUN.value, quiet=options.without_noise)
    if devices.is_chief(strategy) and not _DRY_RUN.value:
        translates = chosen.task.name == "translation"
        print(f"Trained. Translate with: {options.command('translate')} --model_dir={model_dir} < text" if translates else "Trained.")


def main() -> None:
    try:
        options.run(train)
    except SystemExit as ended:
        devices = sys.modules.get("t2t_keras.training.devices")  # Imported if TensorFlow was used.
        if "TF_CONFIG" in os.environ and devices and isinstance(ended.code, int):
            devices.exit_worker(ended.code)
        raise


if __name__ == "__main__":
    main()
