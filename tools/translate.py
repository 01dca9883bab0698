"""Translates standard input to standard output, line for line.

python tools/translate.py --model_dir=runs/x < text.en > text.de
"""

import sys

from absl import flags

from t2t_keras import flags as options

_N_BEST = flags.DEFINE_integer("n_best", 0, "Print this many translations a line, as: line number, tab, score, tab, text.", lower_bound=0)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Sentences translated at once.", lower_bound=1)
options.define_trained_model()


def translate() -> None:
    from t2t_keras import experiment
    from t2t_keras.lines import read_lines
    from t2t_keras.translator import translate_lines

    translator = experiment.load(**options.trained_model(), say=lambda text: print(text, file=sys.stderr))
    if _N_BEST.value > translator.config.beam_size:
        raise ValueError(f"Expected --n_best of at most --beam_size, {translator.config.beam_size}. Received: {_N_BEST.value}.")
    if sys.stdin.isatty():
        print("Type a sentence and press Enter; end with Ctrl-D.", file=sys.stderr)
    write = sys.stdout.buffer.write
    read_ahead = 1 if sys.stdin.isatty() else 4096  # A person at the keyboard waits for an answer.
    function = translator.n_best if _N_BEST.value else translator
    for number, result in enumerate(
        translate_lines(function, read_lines(sys.stdin.buffer), batch_size=_BATCH_SIZE.value, read_ahead=read_ahead), 1
    ):
        if _N_BEST.value:
            for text, score in list(zip(result["text"], result["score"], strict=True))[: _N_BEST.value]:
                write(f"{number}\t{score:.4f}\t{text}\n".encode())
        else:
            write(f"{result['text']}\n".encode())
        sys.stdout.buffer.flush()


def main() -> None:
    options.run(translate)


if __name__ == "__main__":
    main()
