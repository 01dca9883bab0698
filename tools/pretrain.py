"""Trains an encoder on text alone, as BERT (Devlin et al. 2019): masked words and next sentences. Run again, it
resumes.

The text has a sentence on each line and a blank line between documents.

python tools/pretrain.py --train_source=text --valid_source=held_out --model_dir=runs/bert
python tools/pretrain.py --model_dir=runs/bert --evaluate=test  # Beside n-gram models of the training text.
python tools/classify.py --encoder_from=runs/bert …  # A classifier that starts from it.
python tools/train.py --encoder_from=runs/bert …     # A translator.
"""

import json

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import messages, program, training
from t2t_keras.runs.saved_run import SavedRun

_EVALUATE = flags.DEFINE_string(
    "evaluate", "", "Documents in which to predict masked words and next sentences, in place of training."
)
_DRAWS = flags.DEFINE_integer("draws", 5, "How many times --evaluate draws masks and pairs.", lower_bound=1)
_JSON = flags.DEFINE_boolean("json", False, "Print the figures of --evaluate as one JSON object.")
options.define_checkpoint()
training.define("bert")
options.needs("evaluate", "draws", "json", "checkpoint")
training.exclude("evaluate", "data_dir", "damaged_records")


def evaluate() -> None:
    if not _EVALUATE.value:
        raise ValueError("--evaluate must be a file. Received: an empty text.")
    run, damaged_records = SavedRun.open(training.model_dir()), options.given_run().get("damaged_records", "")
    checkpoint = training.checkpoint(run)
    with program.without_noise():
        from t2t_keras.experiments import masked_words

        data_dir = flags.FLAGS["data_dir"].value
        found = masked_words.evaluate(run, checkpoint, _EVALUATE.value, _DRAWS.value, data_dir, damaged_records)
    print(json.dumps(found) if _JSON.value else masked_words.table(found))


def pretrain() -> None:
    if _EVALUATE.present:
        return evaluate()
    if training.train(options.given_run(), options.sources()):
        print(f"Trained. Evaluate with: {messages.command('pretrain', training.model_dir())} --evaluate=documents")


def main() -> None:
    training.run(pretrain)


if __name__ == "__main__":
    main()
