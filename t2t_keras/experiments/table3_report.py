"""Results of the rows of Table 3 (section 6.2) beside the paper's: as Markdown, as CSV and as a picture."""

import csv
import io
import math

from t2t_keras.config import paper
from t2t_keras.experiments.grid_report import VALID, Result
from t2t_keras.reporting import figures
from t2t_keras.system import markdown

NOISE = 0.5  # BLEU. Two trainings that differ in their seed alone differ by up to about this.


def values(result: Result) -> dict:
    """Returns the figures of a row by the names that they have in files."""
    known = vars(result) | result.scores[VALID]
    return {
        name: known[name]
        for name in (
            "row", "updates", "perplexity", "bleu", "signature", "parameters", "target_tokens_per_second", "flops",
            "seconds",
        )
    }  # fmt: skip


def _gain(result: Result, base: Result) -> float:
    """Returns the BLEU that a row has more than base."""
    return result.scores[VALID]["bleu"] - base.scores[VALID]["bleu"]


def _printed_gain(row: str) -> float:
    """Returns the BLEU that a row has more than base in the paper."""
    return paper.TABLE_3[row].bleu - paper.TABLE_3["base"].bleu


def _changed(row: str) -> str:
    """Returns the options in which a row differs from base, at the paper's size."""
    options = {"N" if name == "encoder_layers" else name: value for name, value in paper.TABLE_3[row].options.items()}
    options.pop("decoder_layers", None)  # N, too.
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "–"


def _known(value: float, form: str) -> str:
    """Formats a number, or returns "" for NaN."""
    return "" if math.isnan(value) else format(value, form)


def _table(results: list[Result]) -> list[list[str]]:
    """Returns the cells of the table, with its header. Differences are to base, and empty if base is missing."""
    base = next((result for result in results if result.row == "base"), None)
    header = [
        "row", "changes at the paper's size", "perplexity", "BLEU", "difference", "paper: perplexity", "BLEU",
        "difference", "parameters", "at the paper's size", "paper: 10⁶", "updates", "target tokens/s", "FLOPs",
    ]  # fmt: skip
    rows = []
    for result in results:
        printed, scores = paper.TABLE_3[result.row], result.scores[VALID]
        ours = f"{_gain(result, base):+.1f}" if base and result is not base else ""
        theirs = f"{_printed_gain(result.row):+.1f}" if result.row != "base" else ""
        if ours and abs(_gain(result, base)) > NOISE:
            ours = f"**{ours}**"
        rows.append([
            result.row, _changed(result.row), f"{scores['perplexity']:.2f}", f"{scores['bleu']:.1f}", ours,
            f"{printed.perplexity:.2f}", f"{printed.bleu:.1f}", theirs, f"{result.parameters:,}",
            f"{paper.model(result.row).num_weights:,}", f"{printed.parameters or ''}", f"{result.updates:,}",
            _known(result.target_tokens_per_second, ",.0f"), _known(result.flops, ".3g"),
        ])  # fmt: skip
    return [header, *rows]


def as_markdown(results: list[Result]) -> str:
    """Returns the table with a note that explains it."""
    head, *rows = _table(results)
    note = (
        "\nPerplexity is per sub-word and BLEU is sacreBLEU "
        f"({', '.join(sorted({result.signature for result in results}))}), both of the validation set, from the last "
        "checkpoint alone, with beam 4 and α 0.6 (section 6.2). The differences are BLEU minus that of base; ours are "
        f"bold where they exceed {NOISE}, about what another seed changes."
    )
    return f"{markdown.table(head, rows)}\n{note}\n"


def as_csv(results: list[Result]) -> str:
    """Returns one line for each row: its figures and options, and those of the paper."""
    lines = []
    for result in results:
        printed, options = paper.TABLE_3[result.row], paper.table_3(result.row)
        theirs = {name: options[name] for name in paper.OPTIONS_OF_ROWS}
        theirs |= {"perplexity": printed.perplexity, "bleu": printed.bleu}
        theirs |= {"parameters_in_millions": printed.parameters or ""}
        ours = values(result) | {name: result.changes[name] for name in paper.OPTIONS_OF_ROWS}
        lines.append(ours | {f"paper_{name}": value for name, value in theirs.items()})
    text = io.StringIO()
    writer = csv.DictWriter(text, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def picture(results: list[Result]):
    """Draws the difference of each row in `results` from the first, base, in BLEU, ours beside the paper's."""
    base, *rows = results
    with figures.drawing():
        figure = figures.new_figure(9, 1.3 + 0.34 * len(rows), "constrained")
        axes = figure.subplots()
        places = range(len(rows))
        ours = [_gain(result, base) for result in rows]
        theirs = [_printed_gain(result.row) for result in rows]
        axes.axvspan(-NOISE, NOISE, color="#EEEEEE", label=f"±{NOISE} BLEU, about the noise of one seed")
        axes.axvline(0, color="#666666", linewidth=0.8)
        axes.barh([place - 0.19 for place in places], ours, height=0.36, color=figures.PALETTE[0], label="ours")
        axes.barh(
            [place + 0.19 for place in places], theirs, height=0.36, color=figures.PALETTE[4], label="the paper's"
        )
        axes.set_yticks(list(places), [f"{result.row}:  {_changed(result.row)}" for result in rows])
        axes.invert_yaxis()
        ours, theirs = base.scores[VALID]["bleu"], paper.TABLE_3["base"].bleu
        figures.rows(axes, f"BLEU minus that of base (ours: {ours:.1f}, the paper's: {theirs})")
        figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    return figure
