"""Translates text line by line, from standard input to standard output or between files.

python tools/translate.py --model_dir=runs/x < text.en > text.de
python tools/translate.py --model_dir=runs/x --input=text.en --output=text.de
python tools/translate.py --model_dir=runs/x --terms=terms.tsv < text.en > text.de
python tools/translate.py --model_dir=runs/x --keep_patterns=braces,tags < text.en > text.de
python tools/translate.py --model_dir=runs/x --sample --draws=5 --seed=2 < text.en
python tools/translate.py --model_dir=runs/x --beam_size=16 --rerank_with=runs/y --mbr=chrf < text.en
python tools/translate.py --model_dir=runs/x --beam_runner=DirectRunner --input='in/*.txt' --output=FOLDER
"""

import contextlib
import sys

from absl import flags

from t2t_keras.cli import beam, messages, program
from t2t_keras.cli import flags as options
from t2t_keras.config import patterns
from t2t_keras.serving import output
from t2t_keras.serving.line_translation import READ_AHEAD, LineTranslation

_INPUT = flags.DEFINE_string(
    "input",
    "",
    "File to translate, plain or gzip, a sentence per line; empty: standard input. With --beam_runner, patterns with "
    "commas between them.",
)
_OUTPUT = flags.DEFINE_string(
    "output",
    "",
    "File for the translations, replaced when all lines are translated; empty: standard output. With --beam_runner, a "
    "folder, which gets a file for each file of --input; the same command finishes what a killed one has begun.",
)
_FLUSH = flags.DEFINE_boolean(
    "flush", False, "Translate each line before reading the next, for interactive use by a program; slower."
)
_N_BEST = flags.DEFINE_integer(
    "n_best",
    0,
    "Number of translations per line, printed as: line number, tab, score, tab, text; 0: the best, as text only.",
    lower_bound=0,
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 0, "Number of sentences translated at once; 0 chooses it by the cores or the GPU.", lower_bound=0
)
_JSONL = flags.DEFINE_boolean(
    "jsonl",
    False,
    "Read a JSON object from each line: text, and optionally constraints and avoid, lists of phrases that the "
    "translation must and must not contain, and ordered, whether it must contain them in their order. Write text, "
    "score and constraints_met, lists with --n_best, and all other keys of the line.",
)
_TERMS = options.define_terms()
_KEEP_PATTERNS = flags.DEFINE_string(
    "keep_patterns",
    "",
    f"What the translation must copy from the source: names among {', '.join(patterns.NAMED)}, and regular expressions "
    "between slashes, separated by commas.",
)
_ALIGNMENT = flags.DEFINE_boolean(
    "alignment",
    False,
    "Write the alignment of the words after each translation and a tab, in Pharaoh's format: 0-0 2-1 aligns word 0 of "
    "the source with word 0 of the translation, and word 2 with word 1. With --jsonl, it is the key alignment.",
)
_WORD_SCORES = flags.DEFINE_boolean(
    "word_scores",
    False,
    "With --jsonl, also write words, those of each translation; word_scores, log P of each, given the source and the "
    "words before it; and pieces and piece_scores, the same for sub-words and the end token.",
)
beam.define("translate files")
options.define_trained_model(exports=True)
options.define_choice()
options.define_sampling(
    "n_best", "beam_size", "alpha", "diverse_groups", "diversity", "jsonl", "terms", "keep_patterns", "alignment"
)
options.needs("jsonl", "word_scores")
options.excludes("beam_runner", "flush")


def _asked() -> LineTranslation:
    """Returns the options of translating, checked before TensorFlow is imported."""
    model = options.translating_model()
    return LineTranslation(
        model,
        sample=options.sampling(),
        **options.choice(),
        **{
            flag.name: flag.value
            for flag in (_N_BEST, _JSONL, _TERMS, _KEEP_PATTERNS, _ALIGNMENT, _WORD_SCORES, _BATCH_SIZE)
        },
    )


def _on_beam(asked: LineTranslation, on_beam: dict[str, str]) -> None:
    if not (_INPUT.value and _OUTPUT.value):
        raise ValueError(
            "--beam_runner needs a pattern of files as --input and a folder as --output. Received: "
            f"--input={_INPUT.value}, --output={_OUTPUT.value}."
        )
    with beam.quietly():
        with beam.importing():
            from t2t_keras.beam import translate_files
        translate_files(asked, _INPUT.value, _OUTPUT.value, **on_beam)


def translate() -> None:
    asked, on_beam = _asked(), beam.given()
    if on_beam:
        return _on_beam(asked, on_beam)
    import tqdm

    from t2t_keras.text import lines

    def warn(message: str) -> None:
        tqdm.tqdm.write(messages.name_flags(message), file=sys.stderr)

    with contextlib.ExitStack() as files:
        terms = asked.read_terms()
        source = files.enter_context(lines.opened(_INPUT.value))
        target = files.enter_context(lines.written_whole(_OUTPUT.value)) if _OUTPUT.value else sys.stdout.buffer
        # Reads files before the model is loaded, so that broken ones are reported at once.
        number_of_lines = lines.count(source)
        with program.without_noise():
            translator = asked.load(terms)
        at_keyboard = program.at_keyboard(source)
        read_ahead = 1 if at_keyboard or _FLUSH.value else READ_AHEAD
        results = translator.results(lines.read_lines(source), warn, read_ahead=read_ahead)
        number_doubtful, number = 0, 0
        for number, result in enumerate(program.with_progress(results, target, at_keyboard, number_of_lines), 1):
            number_doubtful += bool(asked.terms) and output.is_doubtful(result)  # Else a key of the line's own.
            target.write(translator.written(number, result))
            target.flush()
        if number_doubtful:
            warn(f"{number_doubtful:,} of {number:,} translations are doubtful: their terms may not fit.")
    program.exit_now()


def main() -> None:
    program.run(translate)


if __name__ == "__main__":
    main()
