"""Prepares data for training elsewhere: checks the text, learns sub-words, writes shards. Train with --data_dir then.

python tools/prepare.py --train_source=a.en --train_target=a.de --valid_source=v.en --valid_target=v.de --data_dir=data/x
"""

import pathlib

from absl import flags

from t2t_keras import flags as options
from t2t_keras.config import DataConfig, ModelConfig, TrainConfig

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Where to prepare the data.", required=True)
# Of the other groups, only these two matter here; the rest is accepted so that a config's flagfile can be used.
options.define(ModelConfig, TrainConfig, DataConfig)


def prepare() -> None:
    model, train, data = (options.read(group) for group in (ModelConfig, TrainConfig, DataConfig))
    from t2t_keras import prepare  # After the options, so that a wrong one is told at once.

    prepare.prepare(data, model.vocab_size, train.seed, pathlib.Path(_DATA_DIR.value).expanduser())


def main() -> None:
    options.run(prepare)


if __name__ == "__main__":
    main()
