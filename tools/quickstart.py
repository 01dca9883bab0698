"""Quick start: trains on the built-in corpus, evaluates on its test split, and translates three sentences.

    ./tools/quickstart.sh            in a checkout; installs the package first
    t2t-quickstart                   if t2t_keras is installed

The last line of standard output is one JSON object.
"""

import json
import pathlib
import shlex
import sys
import time

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import messages, program, training
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.system.log import logger

SHORT = 3  # Maximum words of a short sentence.
_ROOT = pathlib.Path(__file__).parent.parent
_CHECKOUT = (_ROOT / "setup.py").exists()
# An installed program does not write into its own folder.
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", str((_ROOT if _CHECKOUT else pathlib.Path()) / "runs" / "quickstart"), "Folder of the run."
)
options.define(*run_options.groups_of().values())


def quickstart() -> None:
    started = time.monotonic()
    model_dir = pathlib.Path(_MODEL_DIR.value).expanduser()
    groups = run_options.groups_of().values()
    start = Start.open(model_dir, options.given(*groups), sources=options.sources())
    chosen = start.options
    if chosen.data.names_corpus and chosen.data.dataset != "builtin":
        raise ValueError(
            f"The quick start is for `dataset=builtin`. Train on other text with: {messages.command('train')}"
        )
    with program.without_noise():  # After the options, so that an invalid one is reported at once.
        from t2t_keras.data import prepare
        from t2t_keras.decoding.loading import load
        from t2t_keras.decoding.translator import translate_lines
        from t2t_keras.evaluation.evaluate import evaluate
        from t2t_keras.evaluation.scores import exactly_right
        from t2t_keras.training import devices, run

    strategy = devices.make_strategy(config=chosen.train)  # Before TensorFlow is used.
    state = run.train(start, strategy=strategy, quiet=program.without_noise)

    def test() -> None:
        with program.without_noise():
            translator = load(model_dir)
        sources, references = prepare.read_text(chosen.data_folder(model_dir), "test")
        hypotheses, scores = evaluate(translator, sources, references)
        rows = list(zip(sources, hypotheses, references, strict=True))
        right, short = exactly_right(rows), exactly_right(rows, SHORT)
        logger.info(f"Test: {sum(right)} of {len(right)} new sentences are exactly right, BLEU {scores['bleu']:.2f}.")
        logger.info(f"Test: {sum(short)} of the {len(short)} sentences of at most {SHORT} words are exactly right.")
        for source, hypothesis, reference in [row for row in rows if row[1] != row[2]][:3]:
            logger.info(f"  wrong: {source} → {hypothesis} (expected: {reference})")
        examples = [
            "twenty-one",
            "the third of october nineteen ninety",
            "seven hundred and twenty-one thousand euros and five cents",
        ]
        for source, result in zip(examples, translate_lines(translator, examples), strict=True):
            logger.info(f"  {source} → {result['text']}")
        programs = pathlib.Path(sys.executable).parent
        name, *script = messages.command("translate").split()
        translate = [f"{programs}/{name}", *(f"{_ROOT}/{each}" for each in script), f"--model_dir={model_dir}"]
        curves = [f"{programs}/tensorboard", "--logdir", f"{model_dir}/logs"]
        logger.info(f"See curves and sample translations: {shlex.join(curves)}")  # From any folder, as the next.
        logger.info(f"Translate your own sentences: {shlex.join(translate)}")
        figures = {"exact_match": scores["exact_match"], "exact_match_short": sum(short) / len(short)}
        figures |= {name: scores[name] for name in ("bleu", "signature", "chrf", "perplexity")}
        figures |= {"dtype": state.dtype, "seconds": round(time.monotonic() - started, 1)}
        print(json.dumps(figures | {"training_seconds": round(state.seconds, 1), "model_dir": str(model_dir)}))

    devices.chief_first(strategy, test)


def main() -> None:
    sys.argv.insert(1, "--flagfile=quickstart")  # Flags on the command line come later and win.
    training.run(quickstart)


if __name__ == "__main__":
    main()
