"""Translates standard input to standard output, line by line, with a model server (TensorFlow Serving).

python tools/client.py --server=grpc://localhost:8500 < text.en > text.de
python tools/client.py --server=http://localhost:8501 --n_best=2 < text.en
python tools/client.py --sample --draws=5 --seed=2 < text.en
"""

import collections
import dataclasses
import sys
from collections.abc import Iterator

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.serving import output
from t2t_keras.system.log import printable
from t2t_keras.text.kept import Kept
from t2t_keras.text.request import Request, note_others, read_requests, with_phrases
from t2t_keras.text.terminology import read_terms

_SERVER = flags.DEFINE_string(
    "server",
    "grpc://localhost:8500",
    "Address of the model server: grpc://host:port or http://host:port; with TLS, grpcs:// or https://.",
)
_MODEL_NAME = flags.DEFINE_string("model_name", "translate", "Name of the model on the server.")
_VERSION = flags.DEFINE_integer("model_version", 0, "Version of the model; 0: the newest.", lower_bound=0)
_N_BEST = flags.DEFINE_integer(
    "n_best", None, "Number of translations per line, printed as: line number, tab, score, tab, text.", lower_bound=1
)
_ALPHA = flags.DEFINE_float("alpha", None, "Length penalty (section 6.1), 0 to 10; default: the model's.")
_MAX_LENGTH = flags.DEFINE_integer(
    "max_length",
    None,
    "Maximum length of a translation in sub-words; 0: the model's, which depends on the source's length.",
    lower_bound=0,
)
_PREFIX = flags.DEFINE_string("prefix", None, "Text that each translation begins with.")
_JSONL = flags.DEFINE_boolean("jsonl", False, "Read and write a JSON object in each line, as translate does.")
_WORD_SCORES = flags.DEFINE_boolean(
    "word_scores", False, "With --jsonl, also write scores of words and sub-words, as translate does."
)
options.needs("jsonl", "word_scores")
_TERMS = options.define_terms()
_KEEP_PATTERNS = flags.DEFINE_string(
    "keep_patterns", "", "What the translation must copy from the source, as translate does."
)
options.define_sampling("n_best", "alpha", "prefix", "jsonl", "word_scores", "terms", "keep_patterns")
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Number of lines per request; servers may have a limit.", lower_bound=1
)
_PARALLEL = flags.DEFINE_integer("parallel", 4, "Number of concurrent requests.", lower_bound=1, upper_bound=64)
_TIMEOUT = flags.DEFINE_float("timeout", 60.0, "Seconds to wait for a response.", lower_bound=0.001, upper_bound=86_400)
_ATTEMPTS = flags.DEFINE_integer(
    "attempts", 8, "Number of attempts if the server is unavailable or busy, with growing delays.", lower_bound=1
)


def translate() -> None:
    sample = options.sampling()
    kept = Kept(_KEEP_PATTERNS.value)
    import tqdm

    from t2t_keras.serving import client
    from t2t_keras.text import lines

    terms = read_terms(_TERMS.value)
    given = {flag.name: flag.value for flag in (_N_BEST, _ALPHA, _MAX_LENGTH, _PREFIX) if flag.value is not None}
    if sample:
        search = client.Samples(**dataclasses.asdict(sample), max_length=_MAX_LENGTH.value or 0)
    else:
        search = dataclasses.replace(client.Options(), **given) if given else None
    predict = client.connect(client.Model(_SERVER.value, _MODEL_NAME.value, _VERSION.value, _TIMEOUT.value))
    predict = client.retrying(predict, _ATTEMPTS.value)

    def warn(message: str) -> None:
        tqdm.tqdm.write(printable(message), file=sys.stderr)

    at_keyboard = program.at_keyboard(sys.stdin)
    shown = printable if sys.stdout.isatty() else str  # A terminal obeys what a server sends; a file is exact.
    sizes = {flag.name: 1 if at_keyboard else flag.value for flag in (_BATCH_SIZE, _PARALLEL)}
    texts, others = lines.read_lines(sys.stdin.buffer), collections.deque()
    phrase_flags = " and ".join(f"--{flag.name}" for flag in (_JSONL, _TERMS, _KEEP_PATTERNS) if flag.value)
    if phrase_flags:
        requests = read_requests(texts) if _JSONL.value else map(Request, texts)
        requests = note_others(requests, others)
        texts = with_phrases(requests, terms, kept, warn)
    results = client.translate_lines(predict, texts, search, word_scores=_WORD_SCORES.value, **sizes)
    numbered = sample.draws > 1 if sample else _N_BEST.value is not None
    number_doubtful, number = 0, 0
    for number, result in enumerate(program.with_progress(results, sys.stdout, at_keyboard), 1):
        if _TERMS.value:  # A batch without a sentence with terms has no doubts.
            result.setdefault("doubtful", [False] * len(result["text"]))
        number_doubtful += output.is_doubtful(result)
        for problem in _problems(result, phrase_flags):
            warn(f"Line {number}: {problem}")
        del result["truncated"]
        if _N_BEST.value:
            result = output.merged(result)
        if _JSONL.value:
            if not _N_BEST.value:
                result = {name: values[0] for name, values in result.items()}
            written = f"{shown(output.json_line(number, others.popleft() | result).rstrip())}\n"
        else:
            result["text"] = list(map(shown, result["text"]))
            many = len(result["text"])
            written = output.numbered_lines(number, result, many) if numbered else output.text_line(number, result)
        sys.stdout.buffer.write(written.encode())
        sys.stdout.buffer.flush()
    if number_doubtful:
        warn(f"{number_doubtful:,} of {number:,} translations are doubtful: their terms may not fit.")


def _problems(result: dict, phrase_flags: str) -> Iterator[str]:
    """Yields what a user should know of the result of a line. With --jsonl, the line itself tells the rest."""
    if result["truncated"]:
        yield "longer than the model's maximum input. Only the beginning is translated."
    if _JSONL.value:
        return
    if phrase_flags and not result["constraints_met"][0]:
        yield f"the translation lacks a phrase ({phrase_flags})."
    if output.is_doubtful(result):
        yield "doubtful: its terms make another word very unlikely. Check it."


def main() -> None:
    program.run(translate)


if __name__ == "__main__":
    main()
