"""Translates text line by line, from standard input to standard output or between files.

python tools/translate.py --model_dir=runs/x < text.en > text.de
python tools/translate.py --model_dir=runs/x --input=text.en --output=text.de
python tools/translate.py --model_dir=runs/x --terms=terms.tsv < text.en > text.de
"""

import contextlib
import dataclasses
import json
import sys

from absl import flags

from t2t_keras import phrases, run_folder
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
_JSONL = flags.DEFINE_boolean(
    "jsonl",
    False,
    "Read a JSON object from each line: text, and optionally constraints and avoid, lists of phrases that the translation must and must "
    "not contain, and ordered, whether it must contain them in their order. Write text, score and constraints_met; lists with --n_best.",
)
_TERMS = flags.DEFINE_string(
    "terms",
    "",
    "File of terms: a term, a tab and its translation in each line. The translation must appear where the term is in the source as whole "
    "words.",
)
options.define_trained_model()


def translate() -> None:
    model = options.trained_model()
    [search] = run_folder.groups(model["model_dir"], "decode")
    beam_size = model.get("beam_size", search.beam_size)
    if _N_BEST.value > beam_size:
        raise ValueError(f"Expected --n_best of at most --beam_size, {beam_size}. Received: --n_best={_N_BEST.value}.")
    import tqdm

    from t2t_keras.text import lines

    with contextlib.ExitStack() as files:
        terms = phrases.Terms({})
        if _TERMS.value:
            terms = phrases.Terms.read(lines.read_lines(files.enter_context(lines.opened(_TERMS.value))), _TERMS.value)
        source = files.enter_context(lines.opened(_INPUT.value)) if _INPUT.value else sys.stdin.buffer
        target = files.enter_context(lines.written_whole(_OUTPUT.value)) if _OUTPUT.value else sys.stdout.buffer
        with options.without_noise():
            from t2t_keras.decoding.loading import load
            from t2t_keras.decoding.translator import translate_lines

            translator = load(**model)
        texts = lines.read_lines(source)
        if _JSONL.value or _TERMS.value:
            from t2t_keras.export.signatures import Signatures

            signatures = Signatures(translator)
            requests = phrases.read_requests(texts) if _JSONL.value else map(phrases.Request, texts)
            texts = (json.dumps(dataclasses.asdict(terms.added(request))) for request in requests)

            def function(text) -> dict:
                return signatures.translate_requests([phrases.Request(**json.loads(line)) for line in text.numpy()], _N_BEST.value)
        else:

            def function(text) -> dict:
                return {**(translator.n_best if _N_BEST.value else translator)(text), "truncated": translator.truncated(text)}

        at_keyboard = source.isatty()
        if at_keyboard:
            print("Type a sentence and press Enter; end with Ctrl-D.", file=sys.stderr)
        results = translate_lines(
            function,
            texts,
            batch_size=_BATCH_SIZE.value or translator.limits.batch_size,
            read_ahead=1 if at_keyboard or _FLUSH.value else 4096,
        )
        hidden = True if at_keyboard or target.isatty() else None  # None: hidden unless stderr is a terminal.
        for number, result in enumerate(tqdm.tqdm(results, total=lines.count(source), unit=" lines", disable=hidden), 1):
            if result["truncated"]:
                warning = f"Line {number}: only the first {translator.config.max_input:,} sub-words are translated (--max_input)."
                tqdm.tqdm.write(warning, file=sys.stderr)
            met = result.get("constraints_met", True)
            if not _JSONL.value and not (met if isinstance(met, bool) else all(met)):
                tqdm.tqdm.write(f"Line {number}: a translation lacks a term (--terms).", file=sys.stderr)
            if _JSONL.value:
                del result["truncated"]
                target.write(f"{json.dumps(result, ensure_ascii=False)}\n".encode())
            elif _N_BEST.value:
                for text, score in list(zip(result["text"], result["score"], strict=True))[: _N_BEST.value]:
                    target.write(f"{number}\t{score:.4f}\t{text}\n".encode())
            else:
                target.write(f"{result['text']}\n".encode())
            target.flush()
    options.exit_now()


def main() -> None:
    options.run(translate)


if __name__ == "__main__":
    main()
