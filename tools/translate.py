"""Translates text line by line, from standard input to standard output or between files.

python tools/translate.py --model_dir=runs/x < text.en > text.de
python tools/translate.py --model_dir=runs/x --input=text.en --output=text.de
python tools/translate.py --model_dir=runs/x --sample --draws=5 --seed=2 < text.en
"""

import contextlib
import sys

from absl import flags

from t2t_keras import run_folder
from t2t_keras.cli import flags as options

_INPUT = flags.DEFINE_string("input", "", "File to translate, one sentence per line; empty: standard input.")
_OUTPUT = flags.DEFINE_string("output", "", "File for the translations, replaced when all lines are translated; empty: standard output.")
_FLUSH = flags.DEFINE_boolean("flush", False, "Translate each line before reading the next, for interactive use by a program; slower.")
_N_BEST = flags.DEFINE_integer(
    "n_best",
    0,
    "Number of translations per line, printed as: line number, tab, score, tab, text; 0: the best, as text only.",
    lower_bound=0,
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 0, "Number of sentences translated at once; 0: what fills the machine.", lower_bound=0)
options.define_trained_model()
options.define_sampling()


def translate() -> None:
    model = options.trained_model()
    sample = options.sampling([_N_BEST.name, "beam_size", "alpha", "diverse_groups", "diversity"])
    [search] = run_folder.groups(model["model_dir"], "decode")
    beam_size = model.get("beam_size", search.beam_size)
    if _N_BEST.value > beam_size:
        raise ValueError(f"Expected --n_best of at most --beam_size, {beam_size}. Received: --n_best={_N_BEST.value}.")
    import tqdm

    from t2t_keras.text import lines

    with contextlib.ExitStack() as files:
        source = files.enter_context(lines.opened(_INPUT.value)) if _INPUT.value else sys.stdin.buffer
        target = files.enter_context(lines.written_whole(_OUTPUT.value)) if _OUTPUT.value else sys.stdout.buffer
        with options.without_noise():
            from t2t_keras.decoding.loading import load
            from t2t_keras.decoding.translator import translate_lines

            translator = load(**model)
        best = translator.n_best if _N_BEST.value else translator
        function = translator.sampler(sample) if sample else lambda text, _: best(text)
        wanted = sample.draws if sample else _N_BEST.value
        text_only = sample and sample.draws == 1
        at_keyboard = source.isatty()
        if at_keyboard:
            print("Type a sentence and press Enter; end with Ctrl-D.", file=sys.stderr)
        results = translate_lines(
            lambda text, number: {**function(text, number), "truncated": translator.truncated(text)},
            lines.read_lines(source),
            batch_size=_BATCH_SIZE.value or translator.limits.batch_size,
            read_ahead=1 if at_keyboard or _FLUSH.value else 4096,
            numbered=True,
        )
        hidden = True if at_keyboard or target.isatty() else None  # None: hidden unless stderr is a terminal.
        for number, result in enumerate(tqdm.tqdm(results, total=lines.count(source), unit=" lines", disable=hidden), 1):
            if result["truncated"]:
                warning = f"Line {number}: only the first {translator.config.max_input:,} sub-words are translated (--max_input)."
                tqdm.tqdm.write(warning, file=sys.stderr)
            if wanted:
                for text, score in list(zip(result["text"], result["score"], strict=True))[:wanted]:
                    target.write((f"{text}\n" if text_only else f"{number}\t{score:.4f}\t{text}\n").encode())
            else:
                target.write(f"{result['text']}\n".encode())
            target.flush()
    options.exit_now()


def main() -> None:
    options.run(translate)


if __name__ == "__main__":
    main()
