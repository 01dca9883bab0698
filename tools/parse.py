"""Parses sentences into constituency trees, makes training text from treebank files, and scores trees as EVALB does.

python tools/parse.py --linearize --trees='wsj/0[2-9]/*.mrg' --source=train.words --target=train.brackets
python tools/parse.py --model_dir=runs/wsj < sentences > trees
python tools/parse.py --model_dir=runs/wsj --draw < sentences
python tools/parse.py --score --gold='wsj/23/*.mrg' --parsed=trees
"""

import contextlib
import json
import pathlib
import sys

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.system.log import number_of
from t2t_keras.text import lines

_LINEARIZE = flags.DEFINE_boolean(
    "linearize", False, "Write the words and the brackets of --trees to --source and --target, for training."
)
_SCORE = flags.DEFINE_boolean("score", False, "Score the trees of --parsed against those of --gold.")
_RIGHT_BRANCHING = flags.DEFINE_boolean(
    "right_branching", False, "Write right-branching trees, to compare with, in place of a model's."
)
_TREES = flags.DEFINE_string("trees", "", "Treebank files to linearize, comma-separated files or globs.")
_SOURCE = flags.DEFINE_string("source", "", "File for the words of --trees, one sentence per line.")
_TARGET = flags.DEFINE_string("target", "", "File for the brackets of --trees, one sentence per line.")
_PHRASES = flags.DEFINE_integer(
    "phrases",
    0,
    "Also write each phrase of at most this many words, once; for small treebanks. 0: sentences only.",
    lower_bound=0,
)
_GOLD = flags.DEFINE_string(
    "gold", "", "Correct trees: treebank files, or one tree per line; comma-separated files or globs."
)
_PARSED = flags.DEFINE_string(
    "parsed", "", "Trees to score, one per line as this program writes them; comma-separated files or globs."
)
_JSON = flags.DEFINE_boolean("json", False, "Print scores as one JSON object.")
_INPUT = flags.DEFINE_string(
    "input", "", "Sentences, one per line, with spaces between words, plain or gzip; empty: standard input."
)
_OUTPUT = flags.DEFINE_string(
    "output", "", "File for the trees, replaced when all sentences are parsed; empty: standard output."
)
_DRAW = flags.DEFINE_boolean("draw", False, "Draw each tree over several lines, with a blank line after it.")
_FLUSH = flags.DEFINE_boolean(
    "flush", False, "Parse each line before reading the next, for interactive use by a program; slower."
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 0, "Number of sentences parsed at once; 0 chooses it by the cores or the GPU.", lower_bound=0
)
options.define_trained_model(required=False)

# What the program can do, and the flags that it needs.
_TASKS = {
    "linearize": ("trees", "source", "target"),
    "score": ("gold", "parsed"),
    "right_branching": (),
    "model_dir": (),
}
options.needs("linearize", "trees", "source", "target", "phrases")
options.needs("score", "gold", "parsed", "json")
options.needs("right_branching model_dir", "input", "output", "draw")
options.needs("model_dir", "flush", "batch_size", *options.OF_TRAINED_MODEL)


def _task() -> str:
    """Returns the flag of the task that the command line asks for."""
    given = [name for name in _TASKS if flags.FLAGS[name].value]
    if len(given) != 1:
        names = ", ".join(f"--{name}" for name in _TASKS)
        raise ValueError(f"Give one of {names}. Received: {', '.join(f'--{name}' for name in given) or 'none'}.")
    (task,) = given
    if missing := [f"--{name}" for name in _TASKS[task] if not flags.FLAGS[name].value]:
        needed = ", ".join(f"--{name}" for name in _TASKS[task])
        raise ValueError(f"--{task} needs {needed}. Missing: {', '.join(missing)}.")
    return task


def _linearize() -> None:
    from t2t_keras.data import text_files
    from t2t_keras.parsing.linearize import phrases, to_tokens
    from t2t_keras.parsing.trees import clean, preterminals, read_trees

    written = [pathlib.Path(name).expanduser().resolve() for name in (_SOURCE.value, _TARGET.value)]
    if written[0] == written[1]:
        raise ValueError(f"--source and --target must be two files. Received: {_TARGET.value} twice.")
    treebank = text_files.expand(_TREES.value)
    if replaced := [path for path in treebank if path.resolve() in written]:
        raise ValueError(f"--source and --target must not replace a file of --trees. Received: {replaced[0]}.")
    sentences = empty = 0
    known = set()  # Phrases that are written.

    def write(tree) -> None:
        source.write(f"{' '.join(leaf.word for leaf in preterminals(tree))}\n".encode())
        target.write(f"{' '.join(to_tokens(tree))}\n".encode())

    with lines.written_whole(_SOURCE.value) as source, lines.written_whole(_TARGET.value) as target:
        for path in treebank:
            for tree in map(clean, read_trees(text_files.text(str(path)), str(path))):
                if not tree.children:
                    empty += 1
                    continue
                write(tree)
                sentences += 1
                for phrase in phrases(tree, _PHRASES.value):
                    if (text := str(phrase)) not in known:
                        known.add(text)
                        write(phrase)
        if not sentences:
            raise ValueError(f"No tree in {_TREES.value} has words.")
    also = f" and {number_of(len(known), 'phrase')}" if _PHRASES.value else ""
    left_out = f" Left out: {number_of(empty, 'tree')} without words." if empty else ""
    wrote = f"{number_of(sentences, 'sentence')}{also}"
    print(f"Wrote {wrote} to {_SOURCE.value} and {_TARGET.value}.{left_out}", file=sys.stderr)


def _score() -> None:
    from t2t_keras.data import text_files
    from t2t_keras.parsing import evalb
    from t2t_keras.parsing.trees import clean, read_file

    gold = [
        tree for path in text_files.expand(_GOLD.value) for tree in read_file(text_files.text(str(path)), str(path))[0]
    ]
    parsed, errors = read_file(text_files.text(_PARSED.value), _PARSED.value, len(gold))
    if len(gold) != len(parsed):  # Blank lines may separate the gold trees, and then the parsed trees, too.
        gold = [tree for tree in gold if tree.children]
    if len(gold) != len(parsed):
        parsed = [tree for tree in parsed if tree is None or tree.children]
    if len(gold) != len(parsed):  # --linearize leaves out trees without words.
        gold = [tree for tree in gold if clean(tree).children]
    if len(gold) != len(parsed):
        raise ValueError(
            f"--parsed must have a tree for each tree in --gold. Received: {len(parsed):,} in {_PARSED.value} and "
            f"{len(gold):,} in {_GOLD.value}."
        )
    pairs = zip(gold, parsed, strict=True)
    # A line that is blank in both files is no sentence.
    every, short = evalb.score((tree, other) for tree, other in pairs if tree.children or not other or other.children)
    for error in errors:
        print(f"Not scored: {error}", file=sys.stderr)
    if every.valid < every.sentences:
        print(
            f"{every.sentences - every.valid:,} of {every.sentences:,} sentences are not scored, as in EVALB: "
            f"{every.errors:,} with other words than in --gold, or no tree (errors); {every.skipped:,} without words "
            "(skipped).",
            file=sys.stderr,
        )
    rows = [evalb.summary(scores) for scores in (every, short)]
    if _JSON.value:
        print(json.dumps({"all": rows[0], "short": rows[1]}))
        return
    print(f"{'':20}{'all':>9}{f'<= {evalb.SHORT} words':>15}")
    for name in rows[0]:
        values = [f"{row[name]:.2f}" if isinstance(row[name], float) else f"{row[name]:d}" for row in rows]
        name = {"f1": "F1", "few_crossing": "2 or less crossing"}.get(name, name.replace("_", " "))
        print(f"{name:20}{values[0]:>9}{values[1]:>15}")


def _parses(target):
    """Yields a parse for each line of the input."""
    from t2t_keras.parsing.trees import split_words

    with lines.opened(_INPUT.value) as source:
        if _RIGHT_BRANCHING.value:
            from t2t_keras.parsing.linearize import right_branching

            yield from ((right_branching(split_words(line)), None) for line in lines.read_lines(source))
            return
        model, number_of_lines = options.trained_model(), lines.count(source)
        import tqdm

        with program.without_noise():
            from t2t_keras.parsing.parser import parse_lines

            translator = model.load()
        at_keyboard = program.at_keyboard(source)
        parses = parse_lines(
            translator,
            lines.read_lines(source),
            batch_size=_BATCH_SIZE.value or translator.limits.batch_size,
            read_ahead=1 if at_keyboard or _FLUSH.value else 4096,
        )
        for number, parse in enumerate(program.with_progress(parses, target, at_keyboard, number_of_lines), 1):
            if parse.truncated:
                longest = f"--max_input={translator.config.max_input:,} sub-words, end token included"
                tqdm.tqdm.write(f"Line {number}: longer than {longest}. Only the beginning is parsed.", file=sys.stderr)
            yield parse.tree, parse


def _parse() -> None:
    from t2t_keras.parsing.trees import draw

    parses = []  # Of sentences: the number of the hypothesis, and whether it was repaired.
    with lines.written_whole(_OUTPUT.value) if _OUTPUT.value else contextlib.nullcontext(sys.stdout.buffer) as target:
        for tree, parse in _parses(target):
            text = (draw(tree) if _DRAW.value else str(tree)) if tree.children else ""
            target.write(f"{text}\n".encode())
            target.flush()
            if tree.children and parse:
                parses.append((parse.hypothesis, parse.repaired))
    if parses:
        repaired = sum(was_repaired for _, was_repaired in parses)
        later = sum(hypothesis > 0 for hypothesis, _ in parses)
        shares = [f"{100 * (len(parses) - number) / len(parses):.2f}%" for number in (later + repaired, repaired)]
        print(
            f"{number_of(len(parses), 'sentence')} parsed. Well-formed: the best hypothesis of {shares[0]}, any "
            f"hypothesis of {shares[1]}. Repaired: {repaired:,}.",
            file=sys.stderr,
        )


def run() -> None:
    {"linearize": _linearize, "score": _score}.get(_task(), _parse)()


def main() -> None:
    program.run(run)


if __name__ == "__main__":
    main()
