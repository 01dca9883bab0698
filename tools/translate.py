"""Translates text line by line, from standard input to standard output or between files.

python tools/translate.py --model_dir=runs/x < text.en > text.de
python tools/translate.py --model_dir=runs/x --input=text.en --output=text.de
python tools/translate.py --model_dir=runs/x --terms=terms.tsv < text.en > text.de
python tools/translate.py --model_dir=runs/x --keep_patterns=braces,tags < text.en > text.de
python tools/translate.py --model_dir=runs/x --sample --draws=5 --seed=2 < text.en
python tools/translate.py --model_dir=runs/x --beam_size=16 --rerank_with=runs/y --mbr=chrf < text.en
"""

import contextlib
import dataclasses
import json
import math
import pathlib
import sys

from absl import flags

from t2t_keras import patterns, phrases, run_folder
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
_MBR = flags.DEFINE_enum(
    "mbr",
    None,
    ["chrf"],
    "Choose among the --beam_size translations, or --draws, of a line by minimum Bayes risk: the largest expected chrF, which is then the "
    "score.",
)
_RERANK_WITH = flags.DEFINE_string(
    "rerank_with", "", "Folder of another run, whose scores of the --beam_size translations or --draws of a line are added to theirs."
)
_RERANK_WEIGHT = flags.DEFINE_float("rerank_weight", 1.0, "Weight of the scores of --rerank_with.", lower_bound=0)
_RERANK_DIRECTION = flags.DEFINE_enum(
    "rerank_direction",
    "forward",
    ["forward", "right_to_left", "backward"],
    "What the run of --rerank_with models: translations; translations with their words in reverse order; or sources, given translations.",
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
_KEEP_PATTERNS = flags.DEFINE_string(
    "keep_patterns",
    "",
    f"What the translation must copy from the source: names among {', '.join(patterns.NAMED)}, and regular expressions between slashes, "
    "separated by commas.",
)
options.define_trained_model()
options.define_sampling()


def translate() -> None:
    model = options.trained_model()
    of_phrases = (_JSONL, _TERMS, _KEEP_PATTERNS)
    sample = options.sampling(["n_best", "beam_size", "alpha", "diverse_groups", "diversity", *(flag.name for flag in of_phrases)])
    [search] = run_folder.groups(model["model_dir"][0], "decode")
    beam_size = model.get("beam_size", search.beam_size)
    if _N_BEST.value > beam_size:
        raise ValueError(f"Expected --n_best of at most --beam_size, {beam_size}. Received: --n_best={_N_BEST.value}.")
    reordered = [f"--{flag.name}={flag.value}" for flag in (_MBR, _RERANK_WITH) if flag.value]
    with_phrases = " and ".join(f"--{flag.name}" for flag in of_phrases if flag.value)
    if with_phrases and reordered:
        raise ValueError(f"Expected {with_phrases} without {' and '.join(reordered)}, which may choose translations without a phrase.")
    groups = model.get("diverse_groups", search.diverse_groups)
    if with_phrases and groups > 1:
        raise ValueError(f"Expected one group of beams with {with_phrases}. Received: --diverse_groups={groups}.")
    flag, candidates = ("--draws", sample.draws) if sample else ("--beam_size", beam_size)
    if reordered and candidates == 1:
        raise ValueError(f"Expected a {flag} of at least 2 with {' and '.join(reordered)}. Received: {flag}=1.")
    if sample and len(reordered) > 1:
        raise ValueError(f"Expected one of {' and '.join(reordered)} with --sample. Received both.")
    if unused := [f"--{flag.name}" for flag in (_RERANK_WEIGHT, _RERANK_DIRECTION) if flag.present and not _RERANK_WITH.value]:
        raise ValueError(f"Expected --rerank_with with {' and '.join(unused)}. Received none.")
    if not _RERANK_WEIGHT.value < math.inf:  # NaN is not, too.
        raise ValueError(f"Expected a finite --rerank_weight. Received: {_RERANK_WEIGHT.value}.")
    if _RERANK_WITH.value:
        run_folder.groups(pathlib.Path(_RERANK_WITH.value).expanduser(), "model")
    kept = patterns.Kept(_KEEP_PATTERNS.value)
    import tqdm

    from t2t_keras.text import lines

    def warn(message: str) -> None:
        tqdm.tqdm.write(message, file=sys.stderr)

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
            function = translator.n_best if _N_BEST.value or reordered else translator
            if sample:
                function = translator.sampler(sample)
            if _RERANK_WITH.value:
                from t2t_keras.decoding.reranking import reranked

                other = load(pathlib.Path(_RERANK_WITH.value).expanduser(), dtype=model["dtype"])
                direction, alpha = _RERANK_DIRECTION.value, 0.0 if sample else translator.config.alpha
                function = reranked(function, other, weight=_RERANK_WEIGHT.value, alpha=alpha, direction=direction)
        wanted = (0 if reordered else sample.draws) if sample else _N_BEST.value
        text_only = sample and sample.draws == 1
        texts = lines.read_lines(source)
        if with_phrases:
            from t2t_keras.export.signatures import Signatures

            signatures = Signatures(translator)
            requests = phrases.read_requests(texts) if _JSONL.value else map(phrases.Request, texts)

            texts = (
                json.dumps(dataclasses.asdict(request))
                for request in phrases.with_constraints(requests, lambda text: [*terms.of(text), *kept.of(text)], warn, signatures.fits)
            )

            def translated(text) -> dict:
                return signatures.translate_requests([phrases.Request(**json.loads(line)) for line in text.numpy()], _N_BEST.value)
        else:

            def translated(text, *number) -> dict:
                return {**function(text, *number), "truncated": translator.truncated(text)}

        at_keyboard = source.isatty()
        if at_keyboard:
            print("Type a sentence and press Enter; end with Ctrl-D.", file=sys.stderr)
        results = translate_lines(
            translated,
            texts,
            batch_size=_BATCH_SIZE.value or translator.limits.batch_size,
            read_ahead=1 if at_keyboard or _FLUSH.value else 4096,
            numbered=sample is not None,
        )
        if _MBR.value:
            from t2t_keras.decoding.minimum_bayes_risk import by_mbr

            results = (by_mbr(result, weighted=not sample) for result in results)
        hidden = True if at_keyboard or target.isatty() else None  # None: hidden unless stderr is a terminal.
        for number, result in enumerate(tqdm.tqdm(results, total=lines.count(source), unit=" lines", disable=hidden), 1):
            if result["truncated"]:
                warn(f"Line {number}: only the first {translator.config.max_input:,} sub-words are translated (--max_input).")
            met = result.get("constraints_met", True)
            if not _JSONL.value and not (met if isinstance(met, bool) else all(met)):
                warn(f"Line {number}: a translation lacks a phrase ({with_phrases}).")
            if _JSONL.value:
                del result["truncated"]
                target.write(f"{json.dumps(result, ensure_ascii=False)}\n".encode())
            elif wanted:
                for text, score in list(zip(result["text"], result["score"], strict=True))[:wanted]:
                    target.write((f"{text}\n" if text_only else f"{number}\t{score:.4f}\t{text}\n").encode())
            else:
                target.write(f"{result['text'][0] if reordered else result['text']}\n".encode())
            target.flush()
    options.exit_now()


def main() -> None:
    options.run(translate)


if __name__ == "__main__":
    main()
