"""A comparison of systems as text for a terminal."""

from collections.abc import Sequence

from t2t_keras.evaluation.comparison import Comparison, Example, System
from t2t_keras.system.log import number_of
from t2t_keras.text.word_differences import word_differences

# Columns of a table of scores: title, attribute of an `Estimate`, format.
_COLUMNS = (
    ("score", "score", ".2f"),
    ("mean", "mean", ".2f"),
    ("± 95%", "margin", ".2f"),
    ("p (bootstrap)", "p_value", ".4f"),
    ("p (randomization)", "randomization_p_value", ".4f"),
)


def report(comparison: Comparison) -> str:
    """Returns tables of scores and of wins and losses by length, and sentences with [-words of the baseline-] and
    {+words of a system+}.
    """
    baseline, *others = comparison.systems
    parts = [
        f"{number_of(comparison.sentences, 'sentence')}. p is the probability of a difference from {baseline.name} "
        "at least as large as this one, if both are equally good.",
        f"{_scores('BLEU', 'bleu', comparison.systems)}\n{comparison.signature}",
        f"{_scores('chrF2', 'chrf', comparison.systems)}\n{comparison.chrf_signature}",
    ]
    for system in others:
        title = f"{system.name} against {baseline.name}; wins, losses and gain by the chrF2 of each sentence"
        parts.append(f"{title}\n{_lengths(system, comparison.length_of)}")
        for verb, examples in (("gains", system.better), ("loses", system.worse)):
            parts += [_example(example, baseline.name, system.name, verb) for example in examples]
    return "\n\n".join(parts)


def _scores(title: str, metric: str, systems: Sequence[System]) -> str:
    estimates = [getattr(system, metric) for system in systems]
    columns = [column for column in _COLUMNS if getattr(estimates[1], column[1]) is not None]
    rows = [
        [system.name, *(_cell(getattr(estimate, field), form) for _, field, form in columns)]
        for system, estimate in zip(systems, estimates, strict=True)
    ]
    return _table([[title, *(column for column, _, _ in columns)], *rows])


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _lengths(system: System, length_of: str) -> str:
    rows = []
    for group in system.lengths:
        lengths = f"{group.shortest} to {group.longest}" if group.shortest < group.longest else f"{group.longest}"
        bleus = f"{group.baseline_bleu:.2f}", f"{group.bleu:.2f}"
        counts = map(str, (group.wins, group.losses, group.ties))
        rows.append([lengths, str(group.sentences), *bleus, *counts, f"{group.gain:+.2f}"])
    head = [f"tokens of the {length_of}", "sentences", "baseline BLEU", "BLEU", "wins", "losses", "ties", "mean gain"]
    return _table([head, *rows])


def _example(example: Example, baseline: str, system: str, verb: str) -> str:
    parts = word_differences(example.baseline, example.system)
    lines = [
        *([("source", example.source)] if example.source else []),
        *(("reference", reference) for reference in example.references),
        (baseline, "".join(left if left == right else f"[-{left}-]" for left, right in parts if left)),
        (system, "".join(right if left == right else f"{{+{right}+}}" for left, right in parts if right)),
    ]
    width = max(len(name) for name, _ in lines)
    scores = f"from {example.baseline_chrf:.1f} to {example.chrf:.1f}"
    change = f"line {example.line}: {system} {verb} {abs(example.gain):.1f}, {scores}"
    return "\n".join([change, *(f"  {name.ljust(width)}  {text}" for name, text in lines)])


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Aligns cells: the first column to the left, the others to the right."""
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[name.ljust(first), *map(str.rjust, cells, widths)] for name, *cells in rows]
    return "\n".join("  ".join(line).rstrip() for line in lines)
