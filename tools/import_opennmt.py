"""Imports a Transformer of OpenNMT-tf 2: a checkpoint of a run, or a SavedModel.

python tools/import_opennmt.py --from=run --config=data.yml --source_subwords=joint.model --model_dir=runs/mine
python tools/import_opennmt.py --from=run --checkpoint=avg --source_vocabulary=en.vocab --target_vocabulary=de.vocab \\
    --model_dir=runs/mine
python tools/translate.py --model_dir=runs/mine < lines
"""

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.config.networks import ACTIVATIONS

_FROM = flags.DEFINE_string("from", None, "Folder of a run of OpenNMT-tf, or of its SavedModel.", required=True)
flags.DEFINE_string("model_dir", None, "Folder of the run, new or empty.", required=True)
_OPTIONS = [
    flags.DEFINE_string("checkpoint", "", "Checkpoint, such as ckpt-1000, 1000 or avg; empty for the newest."),
    flags.DEFINE_string("config", "", "Configuration, a YAML file; empty for data.yml or config.yml in --from."),
    flags.DEFINE_string("source_vocabulary", "", "Vocabulary of the source; empty for that of the configuration."),
    flags.DEFINE_string("target_vocabulary", "", "Vocabulary of the target, likewise; or else that of the source."),
    flags.DEFINE_string(
        "source_subwords", "", "SentencePiece model of the source. Without one, text has spaces between its tokens."
    ),
    flags.DEFINE_string("target_subwords", "", "SentencePiece model of the target; or else that of the source."),
    flags.DEFINE_integer("num_heads", 0, "Number of attention heads; 0: 16 for d_model=1024, 2 for 64, else 8."),
    flags.DEFINE_enum("activation", "relu", ACTIVATIONS, "Activation of the feed-forward networks."),
    flags.DEFINE_boolean(
        "source_end", None, "Whether sources end in </s>; otherwise as the configuration says, or only in ScalingNmt."
    ),
]


def import_opennmt() -> None:
    from t2t_keras.interop import opennmt

    values = {flag.name: flag.value for flag in _OPTIONS}
    opennmt.import_opennmt(_FROM.value, options.folder("model_dir"), **values)


def main() -> None:
    program.run(import_opennmt)


if __name__ == "__main__":
    main()
