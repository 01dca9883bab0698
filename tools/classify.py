"""Trains a classifier of sentences or pairs of sentences, evaluates it, classifies text, and exports a SavedModel.

Each line of the text is a label and one sentence or two, with tabs between them; text to classify has no labels.

python tools/classify.py --train_source=train.tsv --valid_source=valid.tsv --encoder_from=runs/bert --model_dir=runs/x
python tools/classify.py --model_dir=runs/x --evaluate=test.tsv --bag_of_words=train.tsv  # Beside logistic regression.
python tools/classify.py --model_dir=runs/x --predict < sentences
python tools/classify.py --model_dir=runs/x --export_dir=exports/classifier
"""

import collections
import contextlib
import json
import pathlib
import sys

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import messages, program, training
from t2t_keras.data import text_files
from t2t_keras.evaluation import bag_of_words
from t2t_keras.runs import export_folder
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.tasks import classification

_EVALUATE = flags.DEFINE_string("evaluate", "", "Text with labels to classify, in place of training.")
_BAG_OF_WORDS = flags.DEFINE_string(
    "bag_of_words", "", "With --evaluate: training text of logistic regression on words, to compare with."
)
_PREDICT = flags.DEFINE_boolean(
    "predict", False, "Classify the lines of --input: a label, and the probability of each class."
)
_EXPORT_DIR = flags.DEFINE_string("export_dir", "", "Export to this folder, as its next version, in place of training.")
_INPUT = flags.DEFINE_string(
    "input", "", "Sentences, or pairs with a tab between them, one on each line, plain or gzip; empty: standard input."
)
_OUTPUT = flags.DEFINE_string(
    "output", "", "File for the labels, replaced when all lines are classified; empty: standard output."
)
_JSON = flags.DEFINE_boolean(
    "json", False, "Print the figures of --evaluate as one JSON object, and each line of --predict as one."
)
options.define_checkpoint()
training.define("classifier")

_TASKS = ("evaluate", "predict", "export_dir")  # What the program can do beside training.
options.needs("evaluate", "bag_of_words")
options.needs("predict", "input", "output")
options.needs("evaluate predict", "json")
options.needs(" ".join(_TASKS), "checkpoint")
training.exclude(" ".join(_TASKS))


def _task() -> str:
    """Returns the flag of what the command line asks for; empty for training. Refuses several and an empty path."""
    asked = [name for name in _TASKS if flags.FLAGS[name].value]
    if empty := [name for name in _TASKS if flags.FLAGS[name].value == "" and flags.FLAGS[name].present]:
        raise ValueError(f"--{empty[0]} must be a path. Received: an empty text.")
    if len(asked) > 1:
        names = " and ".join(f"--{name}" for name in asked)
        raise ValueError(f"The program does one thing at a time. Received: {names}.")
    return (asked or [""])[0]


def _read(names: str, skip_bad_lines: bool = False) -> list[tuple[str, ...]]:
    """Returns the labels and sentences of text files."""
    return classification.read(text_files.text(names, skip_bad_lines), names)


def _names(model_dir: pathlib.Path) -> list[str]:
    """Returns the names of the classes of the run in a folder, none if it has no such run."""
    run = SavedRun.find(model_dir)
    return getattr(run.model, "names", []) if run else []


def train() -> None:
    given = options.given_run()
    if given.get("train_source"):
        texts = (given[name] for name in ("train_source", "valid_source") if given.get(name))
        of_texts = [{label for label, *_ in _read(text, given.get("skip_bad_lines", False))} for text in texts]
        labels, of_valid = sorted(of_texts[0]), sorted(of_texts[-1])
        if strange := sorted(set(of_valid) - set(labels)):
            raise ValueError(
                f"The labels of `valid_source` must be among those of `train_source`: {', '.join(labels[:20])}. "
                f"Received: {', '.join(strange)}."
            )
        if wrong := [label for label in labels if "," in label]:
            raise ValueError(f"A label must not have a comma. Received: {wrong[0]!r}.")
        known = _names(training.model_dir())
        if not known and given.get("parent"):
            with contextlib.suppress(ValueError):  # Training reports what is wrong with it.
                known = _names(pathlib.Path(given["parent"]).expanduser())
        if sorted(given.get("labels", "").split(",")) != labels and sorted(known) != labels:
            if "labels" in given:
                raise ValueError(
                    f"`labels` must be those of the training text: {','.join(labels)}. Received: "
                    f"labels={given['labels']}."
                )
            given["labels"] = ",".join(labels)
    if training.train(given, options.sources()):
        print(f"Trained. Classify with: {messages.command('classify', training.model_dir())} --predict < text")


def evaluate() -> None:
    texts = _read(_EVALUATE.value)
    known = _read(_BAG_OF_WORDS.value) if _BAG_OF_WORDS.value else []
    run = SavedRun.open(training.model_dir())
    names = getattr(run.model, "names", [])
    if names and (strange := sorted({label for label, *_ in texts} - set(names))):
        raise ValueError(
            f"The labels of `evaluate` must be those of the run: {', '.join(names[:20])}. Received: "
            f"{', '.join(strange[:20])}."
        )
    of_words = {"bag_of_words": bag_of_words.accuracy(known, texts)} if known else {}
    with program.without_noise():
        from t2t_keras.serving import classifier

        model, _ = classifier.load(run, training.checkpoint(run))
    labels = [label for label, *_ in texts]
    predicted = [prediction.label for prediction in model.predict("\t".join(sentences) for _, *sentences in texts)]
    right = sum(label == other for label, other in zip(labels, predicted, strict=True))
    [(most, _)] = collections.Counter(label for label, *_ in known or texts).most_common(1)
    baseline = "most_frequent_label_of_training" if known else "most_frequent_label_here"
    figures = {"accuracy": right / len(texts), baseline: labels.count(most) / len(texts), **of_words}
    if _JSON.value:
        print(json.dumps(figures | {"texts": len(texts)}))
        return
    for name, value in figures.items():
        print(f"{name.replace('_', ' ')}: {100 * value:.1f}%")
    print(f"texts: {len(texts):,}")


def predict() -> None:
    from t2t_keras.text import lines

    run = SavedRun.open(training.model_dir())
    with contextlib.ExitStack() as files:
        source = files.enter_context(lines.opened(_INPUT.value))
        target = files.enter_context(lines.written_whole(_OUTPUT.value)) if _OUTPUT.value else sys.stdout.buffer
        number_of_lines = lines.count(source)
        with program.without_noise():
            from t2t_keras.serving import classifier

            model, _ = classifier.load(run, training.checkpoint(run))
        at_keyboard = program.at_keyboard(source)
        predictions = model.predict(lines.read_lines(source), batch_size=1 if at_keyboard else 0)
        for prediction in program.with_progress(predictions, target, at_keyboard, number_of_lines):
            shares = [f"{name}={share:.4f}" for name, share in prediction.probabilities.items()]
            as_json = json.dumps(prediction._asdict(), ensure_ascii=False) if _JSON.value else ""
            text = as_json or "\t".join([prediction.label, *shares])
            target.write(f"{text}\n".encode())
            target.flush()


def export() -> None:
    export_dir = pathlib.Path(_EXPORT_DIR.value).expanduser()
    export_folder.check(export_dir)
    run = SavedRun.open(training.model_dir())
    with program.without_noise():
        from t2t_keras.serving import classifier

        classifier.export(export_dir, run, training.checkpoint(run))


def classify() -> None:
    {"": train, "evaluate": evaluate, "predict": predict, "export_dir": export}[_task()]()


def main() -> None:
    training.run(classify)


if __name__ == "__main__":
    main()
