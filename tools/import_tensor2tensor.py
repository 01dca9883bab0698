"""Imports a translation model of tensor2tensor: transformer_base, _big, _tiny and those like them.

python tools/import_tensor2tensor.py --from=t2t_train/ende --model_dir=runs/ende \\
    --vocab=t2t_data/vocab.translate_ende_wmt32k.32768.subwords
python tools/translate.py --model_dir=runs/ende < lines
"""

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program

_FROM = flags.DEFINE_string(
    "from", None, "Folder of the model: its checkpoints, and hparams.json or flags.txt.", required=True
)
flags.DEFINE_string("model_dir", None, "Folder of the run, new or empty.", required=True)
_OPTIONS = [
    flags.DEFINE_string("checkpoint", "", "Checkpoint, such as model.ckpt-250000, or its number; empty: the newest."),
    flags.DEFINE_string("vocab", "", "File of sub-words; empty: vocab.*.subwords in the folder of the model."),
    flags.DEFINE_string("source_vocab", "", "File of the source's own sub-words, if it has some."),
    flags.DEFINE_integer(
        "num_heads", 0, "Number of attention heads, if neither hparams.json nor hparams_set gives it.", lower_bound=0
    ),
    flags.DEFINE_integer(
        "target_space",
        None,
        "The target_space_id of the problem. By default, that which the optimizer's state shows, or 0.",
        lower_bound=0,
    ),
]


def import_tensor2tensor() -> None:
    import t2t_keras

    values = {flag.name: flag.value for flag in _OPTIONS}
    t2t_keras.import_tensor2tensor(_FROM.value, options.folder("model_dir"), **values)


def main() -> None:
    program.run(import_tensor2tensor)


if __name__ == "__main__":
    main()
