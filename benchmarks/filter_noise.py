"""Measures what filtering finds: puts noise of known kinds and rates into clean parallel text, filters it, and counts
what was rejected.

python benchmarks/filter_noise.py --source=train.en --target=train.de --other=train.fr --source_language=en
--target_language=de

The options are those of tools/filter.py, too. Each kind of noise changes as many pairs, drawn with --seed, and no pair
is changed twice. --output_dir keeps the text with noise, to train on it or to filter it with the scores of two models.
With --rejected, the program only counts what another filter rejected:

python tools/filter.py --source=noise/source --target=noise/target --forward_run=… --backward_run=… --output_dir=scored
python benchmarks/filter_noise.py --source=train.en --target=train.de --other=train.fr --rejected=scored/rejected.tsv
"""

import bisect
import collections
import contextlib
import pathlib
import random
import sys
import tempfile

from absl import flags

# `python benchmarks/filter_noise.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.config import FilterConfig
from t2t_keras.data import text_files
from t2t_keras.filtering import judging
from t2t_keras.system import markdown

Pair = tuple[str, str]


def _truncated(text: str, share: float) -> str:
    words = text.split(" ")
    return " ".join(words[: max(1, round(len(words) * share))])


def noisy(pairs: list[Pair], others: list[str], rate: float, seed: int) -> tuple[list[Pair], list[str]]:
    """Puts noise into clean pairs. `others` are their sources in a third language, and `rate` is the share of the pairs
    that each kind of noise changes. Returns as many pairs, and the kind of noise of each: "" for none.
    """
    draw, found, kinds = random.Random(seed), list(pairs), [""] * len(pairs)

    def earlier(index: int) -> Pair:
        return pairs[draw.choice(clean[: max(1, bisect.bisect(clean, index))])]

    changes = {
        "shuffled target": lambda index, next_index: (pairs[index][0], pairs[next_index][1]),
        "copied source": lambda index, _: (pairs[index][0],) * 2,
        "target in another language": lambda index, _: (pairs[index][0], others[index]),
        "source in another language": lambda index, _: (others[index], pairs[index][1]),
        "target truncated to 60%": lambda index, _: (pairs[index][0], _truncated(pairs[index][1], 0.6)),
        "target truncated to 40%": lambda index, _: (pairs[index][0], _truncated(pairs[index][1], 0.4)),
        "target truncated to 20%": lambda index, _: (pairs[index][0], _truncated(pairs[index][1], 0.2)),
        "repeated pair": lambda index, _: earlier(index),
        "repeated pair in capitals, without full stops": lambda index, _: tuple(
            side.strip(".").upper() for side in earlier(index)
        ),
    }
    count = round(rate * len(pairs))
    if len(changes) * count > len(pairs):
        raise ValueError(
            f"Expected a --rate of at most {1 / len(changes):.3f}, for {len(changes)} kinds of noise. Received: {rate}."
        )
    chosen = draw.sample(range(len(pairs)), len(changes) * count)
    clean = sorted(set(range(len(pairs))) - set(chosen))
    for number, (kind, change) in enumerate(changes.items()):
        own = chosen[number * count : (number + 1) * count]
        for index, next_index in zip(own, own[1:] + own[:1], strict=True):
            found[index], kinds[index] = change(index, next_index), kind
    return found, kinds


def report(kinds: list[str], rejected: dict[int, str]) -> str:
    """Returns two tables in Markdown: what was found of each kind of noise, and how right each rule was. `kinds` are
    those of `noisy`, and `rejected` has the rule of each pair that was rejected, by its index.
    """
    totals, by_kind = collections.Counter(kinds), collections.Counter(kinds[index] for index in rejected)
    by_rule = collections.defaultdict(collections.Counter)
    for index, rule in rejected.items():
        by_rule[rule][kinds[index]] += 1
    noise = [[kind, f"{totals[kind]:,}", f"{by_kind[kind] / totals[kind]:.1%}"] for kind in sorted(set(kinds) - {""})]
    noise.append(["none", f"{totals['']:,}", f"{by_kind[''] / totals['']:.2%} rejected"])
    rules = [(f"`{rule}`", by_rule[rule][""], by_rule[rule].total()) for rule in judging.RULES if by_rule[rule]]
    rules.append(("all", by_kind[""], len(rejected)))
    shares = [[name, f"{total:,}", f"{1 - clean / max(total, 1):.1%}"] for name, clean, total in rules]
    tables = (("noise", "pairs", "found"), noise), (("rule", "rejected", "of these, noise"), shares)
    return "\n\n".join(markdown.table(head, rows, right=head[1:]) for head, rows in tables)


def filtered(pairs: list[Pair], folder: pathlib.Path, config: FilterConfig) -> pathlib.Path:
    """Writes pairs to `source` and `target` in a folder, filters them to `filtered`, and returns the path of
    `rejected.tsv`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for side, lines in zip(judging.SIDES, zip(*pairs, strict=True), strict=True):
        with (folder / side).open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    judging.filter_text(*(str(folder / side) for side in judging.SIDES), folder / "filtered", config)
    return folder / "filtered" / "rejected.tsv"


def define() -> None:
    """Defines the flags. Here, because programs of the same process have flags of these names."""
    flags.DEFINE_string("source", None, "Clean text, source side, one sentence per line.", required=True)
    flags.DEFINE_string("target", None, "Its target side.", required=True)
    flags.DEFINE_string("other", None, "The same sentences in a third language.", required=True)
    flags.DEFINE_float(
        "rate", 0.05, "Share of the pairs that each kind of noise changes.", lower_bound=0, upper_bound=0.1
    )
    flags.DEFINE_integer("seed", 1, "Seed of the draws.")
    flags.DEFINE_string(
        "output_dir",
        "",
        "New folder for the text with noise (source and target) and what the filter makes of it (filtered).",
    )
    flags.DEFINE_string("rejected", "", "The file rejected.tsv of a filter of the text with noise; empty: filter it.")
    options.define(FilterConfig)


def measure() -> None:
    source, target, other = text_files.texts(
        [(f"--{name}", flags.FLAGS[name].value) for name in ("source", "target", "other")]
    )
    pairs, kinds = noisy(list(zip(source, target, strict=True)), other, flags.FLAGS.rate, flags.FLAGS.seed)
    rejected, output_dir = flags.FLAGS.rejected, flags.FLAGS.output_dir
    if rejected and output_dir:
        raise ValueError(f"Expected one of --rejected and --output_dir. Received: {rejected} and {output_dir}.")
    with contextlib.ExitStack() as stack:
        if not rejected:
            folder = pathlib.Path(output_dir or stack.enter_context(tempfile.TemporaryDirectory())).expanduser()
            rejected = filtered(pairs, folder, options.read(FilterConfig))
        lines = pathlib.Path(rejected).expanduser().read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines[1:]]
    print(report(kinds, {int(line) - 1: rule for line, rule, _ in rows}))


def main() -> None:
    define()
    program.run(measure)


if __name__ == "__main__":
    main()
