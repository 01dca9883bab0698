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


def with_phrases(translator, number: int):
    """Returns a function for `translate_lines` that translates requests, each as a JSON object."""
    import tensorflow as tf

    from t2t_keras.export.signatures import OWN_ALPHA, Signatures

    signatures = Signatures(translator)

    def translated(lines) -> dict:
        requests = [phrases.Request(**json.loads(line)) for line in lines.numpy()]
        rows = len(requests)
        found = signatures.translate_with_options(
            text=tf.constant([request.text for request in requests]),
            alpha=tf.fill([rows], OWN_ALPHA),
            max_length=tf.zeros([rows], tf.int32),
            n_best=tf.fill([rows], number),
            prefix=tf.fill([rows], ""),
            alignment=tf.fill([rows], False),
            constraints=tf.constant([phrases.joined(request.constraints, "constraints") for request in requests]),
            avoid=tf.constant([phrases.joined(request.avoid, "avoid") for request in requests]),
            ordered=tf.constant([request.ordered for request in requests]),
        )
        for request, error in zip(requests, found["error"].numpy(), strict=True):
            if error:
                raise ValueError(f"{error.decode().strip()} The sentence is: {request.text[:80]!r}.")
        return {name: found[name][:, :number] for name in ("text", "score", "constraints_met")} | {"truncated": found["truncated"]}

    return translated


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
        function, texts = translator.n_best if _N_BEST.value else translator, lines.read_lines(source)
        by_request = _JSONL.value or bool(_TERMS.value)
        if by_request:
            function = with_phrases(translator, max(_N_BEST.value, 1))
            requests = phrases.read_requests(texts) if _JSONL.value else map(phrases.Request, texts)
            texts = (json.dumps(dataclasses.asdict(terms.added(request))) for request in requests)
        at_keyboard = source.isatty()
        if at_keyboard:
            print("Type a sentence and press Enter; end with Ctrl-D.", file=sys.stderr)
        results = translate_lines(
            function if by_request else lambda text: {**function(text), "truncated": translator.truncated(text)},
            texts,
            batch_size=_BATCH_SIZE.value or translator.limits.batch_size,
            read_ahead=1 if at_keyboard or _FLUSH.value else 4096,
        )
        hidden = True if at_keyboard or target.isatty() else None  # None: hidden unless stderr is a terminal.
        for number, result in enumerate(tqdm.tqdm(results, total=lines.count(source), unit=" lines", disable=hidden), 1):
            if result["truncated"]:
                warning = f"Line {number}: only the first {translator.config.max_input:,} sub-words are translated (--max_input)."
                tqdm.tqdm.write(warning, file=sys.stderr)
            if _JSONL.value:
                answer = {name: result[name] if _N_BEST.value else result[name][0] for name in ("text", "score", "constraints_met")}
                target.write(f"{json.dumps(answer, ensure_ascii=False)}\n".encode())
                target.flush()
                continue
            if by_request and not result["constraints_met"][0]:
                tqdm.tqdm.write(f"Line {number}: the translation lacks a term.", file=sys.stderr)
            if _N_BEST.value:
                for text, score in list(zip(result["text"], result["score"], strict=True))[: _N_BEST.value]:
                    target.write(f"{number}\t{score:.4f}\t{text}\n".encode())
            else:
                text = result["text"][0] if by_request else result["text"]
                target.write(f"{text}\n".encode())
            target.flush()
    options.exit_now()


def main() -> None:
    options.run(translate)


if __name__ == "__main__":
    main()
