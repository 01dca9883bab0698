"""Results of variants with several seeds each: as Markdown, as CSV and as a picture."""

import csv
import dataclasses
import io
import math
import shlex
import statistics
from collections.abc import Iterable

from t2t_keras.reporting import figures
from t2t_keras.system import markdown

BASE = "base"  # The row that changes nothing.
VALID = "valid"  # The name of the validation set.
METRICS = ("bleu", "chrf", "perplexity")
FILES = TABLE, CSV, PICTURE = "grid.md", "grid.csv", "grid.png"
# The 97.5% quantiles of Student's t for 1 to 10 degrees of freedom; for more, the last is slightly too large.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclasses.dataclass(frozen=True)
class Result:
    """A trained run.

    Attributes:
        row: name of the variant.
        changes: the options that the variant changes, by name.
        seed: its seed.
        updates: number of updates.
        parameters: number of parameters.
        seconds: time of training, validation and saving.
        flops: floating-point operations of the training; NaN if unknown.
        target_tokens_per_second: speed of training, without padding: the median over the run; NaN if unknown.
        scores: value by metric for each set, by the set's name.
        signature: sacreBLEU's signature.
        options: options that determine the weights, by name.
        scoring: how it was scored.
    """

    row: str
    changes: dict
    seed: int
    updates: int
    parameters: int
    seconds: float
    flops: float
    target_tokens_per_second: float
    scores: dict
    signature: str
    options: dict
    scoring: dict

    def __str__(self) -> str:
        return "; ".join(
            f"{name}: perplexity {scores['perplexity']:.2f}, BLEU {scores['bleu']:.2f}"
            for name, scores in self.scores.items()
        )


def grouped(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Returns the results of each row by seed: base first, then the rows by their validation BLEU, the best first."""
    rows = {}
    for result in sorted(results, key=lambda result: result.seed):
        rows.setdefault(result.row, []).append(result)
    means = {row: statistics.mean(_values(results, VALID, "bleu")) for row, results in rows.items()}
    return {row: rows[row] for row in sorted(rows, key=lambda row: (row != BASE, -means[row]))}


def _any(groups: dict[str, list[Result]]) -> Result:
    """Returns one of the results, which are all of the same sets and scored in the same way."""
    return next(iter(groups.values()))[0]


def flags(changes: dict) -> str:
    """Returns options as a command line has them."""
    return " ".join(f"--{name}={shlex.quote(str(value))}" for name, value in changes.items())


def _values(results: list[Result], name: str, metric: str) -> list[float]:
    return [result.scores[name][metric] for result in results]


def mean_and_deviation(values: list[float], form: str = ".1f") -> str:
    """Formats the mean of the seeds with their standard deviation, which one value and infinite ones do not have."""
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 and all(map(math.isfinite, values)) else ""
    return f"{statistics.mean(values):{form}}{deviation}"


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of the seeds, pooled over the rows.

    Attributes:
        variance: of the values of a row.
        degrees: of freedom: the seeds beyond the first of each row.
    """

    variance: float
    degrees: int

    @classmethod
    def of(cls, rows: Iterable[list[float]]) -> "Noise":
        """Returns the noise of rows, each with the values of its seeds."""
        rows = list(rows)
        degrees = sum(len(values) - 1 for values in rows)
        squares = sum((value - statistics.mean(values)) ** 2 for values in rows for value in values)
        return cls(squares / degrees if degrees else 0.0, degrees)

    def difference(self, values: list[float], of_base: list[float]) -> str:
        """Formats the difference of two means with its standard error; bold if Student's t-test rejects at 5% that the
        rows are alike.
        """
        difference = statistics.mean(values) - statistics.mean(of_base)
        if not self.degrees:
            return f"{difference:+.1f}"
        error = math.sqrt(self.variance * (1 / len(values) + 1 / len(of_base)))
        bold = "**" if abs(difference) > _T[min(self.degrees, len(_T)) - 1] * error > 0 else ""
        return f"{bold}{difference:+.1f} ± {error:.1f}{bold}"


def as_markdown(groups: dict[str, list[Result]]) -> str:
    """Returns the table of the `grouped` results with a note that explains it."""
    names = list(_any(groups).scores)
    header = ["row", "changes", "seeds", *(f"{name}: BLEU" for name in names)]
    header += ["difference from base", "perplexity", "parameters", "updates", "hours"]
    rows, noise = [], Noise.of(_values(results, VALID, "bleu") for results in groups.values())
    for row, results in groups.items():
        bleu = _values(results, VALID, "bleu")
        changes = flags(results[0].changes)
        rows.append([
            row, f"`{changes}`" if changes else "–", ", ".join(str(result.seed) for result in results),
            *(mean_and_deviation(_values(results, name, "bleu")) for name in names),
            noise.difference(bleu, _values(groups[BASE], VALID, "bleu")) if BASE in groups and row != BASE else "",
            mean_and_deviation(_values(results, VALID, "perplexity"), ".2f"), f"{results[0].parameters:,}",
            f"{statistics.mean(result.updates for result in results):,.0f}",
            f"{statistics.mean(result.seconds for result in results) / 3600:.2f}",
        ])  # fmt: skip
    signatures = sorted({result.signature for results in groups.values() for result in results})
    scoring = _any(groups).scoring
    note = (
        f"Each value is the mean of the seeds ± their standard deviation. BLEU is sacreBLEU ({', '.join(signatures)}), "
        f"of --checkpoint={scoring['checkpoint']} with beam {scoring['search']['beam_size']} and α "
        f"{scoring['search']['alpha']:g}. The difference is that of validation BLEU ± its standard error, bold where a "
        f"t-test with the noise of the seeds, pooled over the rows ({noise.degrees} degrees of freedom), rejects at 5% "
        "that the rows are alike: of 20 rows without effect, one is bold by chance. Perplexity is per sub-word of the "
        "validation set: rows with other sub-words do not compare. Hours are those of a run."
    )
    return f"{markdown.table(header, rows)}\n\n{note}\n"


def as_csv(groups: dict[str, list[Result]]) -> str:
    """Returns one line for each run of the `grouped` results, with all scores."""
    text = io.StringIO()
    fields = ("row", "seed", "updates", "parameters", "seconds", "flops", "signature")
    names = list(_any(groups).scores)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, "changes", *(f"{name}_{metric}" for name in names for metric in METRICS)])
    for result in (result for results in groups.values() for result in results):
        writer.writerow([
            *(getattr(result, field) for field in fields), flags(result.changes),
            *(result.scores[name][metric] for name in names for metric in METRICS),
        ])  # fmt: skip
    return text.getvalue()


def picture(groups: dict[str, list[Result]]):
    """Draws the BLEU of each run of the `grouped` results and the mean of each row, with a panel for each set."""
    names = list(_any(groups).scores)
    with figures.drawing():
        figure = figures.new_figure(2.5 + 3 * len(names), 1.4 + 0.34 * len(groups), "constrained")
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for name, axes in zip(names, panels, strict=True):
            seeds = {"color": figures.PALETTE[5], "markersize": 5}
            means = {"color": figures.PALETTE[0], "markersize": 14, "markeredgewidth": 2}
            for place, (row, results) in enumerate(groups.items()):
                values, label = _values(results, name, "bleu"), "_" if place else ""  # matplotlib leaves out "_…".
                mean = statistics.mean(values)
                if row == BASE:
                    axes.axvline(mean, color="#666666", linewidth=0.8)
                axes.plot(values, [place] * len(values), "o", label=f"{label}a seed", **seeds)
                axes.plot([mean], [place], "|", label=f"{label}mean", **means)
            axes.set_title(name, fontsize=10)
            figures.rows(axes, "BLEU")
        panels[0].set_yticks(range(len(groups)), list(groups))
        panels[0].invert_yaxis()
        panels[0].legend(frameon=False, fontsize=8, loc="best")
    return figure
