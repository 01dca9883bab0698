"""Results of the rows of Table 3 (section 6.2) beside the paper's: as Markdown, as CSV and as a picture."""

import csv
import dataclasses
import io
import math

from t2t_keras.config import paper
from t2t_keras.reporting import figures
from t2t_keras.system import markdown

NOISE = 0.5  # BLEU. Two trainings that differ in their seed alone differ by up to about this.


@dataclasses.dataclass(frozen=True)
class Result:
    """A trained row of Table 3.

    Attributes:
        row: its name.
        updates: number of updates.
        perplexity: per sub-word of the validation set.
        bleu: sacreBLEU of the validation set.
        signature: sacreBLEU's signature.
        parameters: number of parameters.
        target_tokens_per_second: speed of training, without padding; the median over the run.
        flops: floating-point operations of the training; NaN if unknown.
        seconds: time of training, validation and saving.
        options: options that determine the result, by name.
    """

    row: str
    updates: int
    perplexity: float
    bleu: float
    signature: str
    parameters: int
    target_tokens_per_second: float
    flops: float
    seconds: float
    options: dict

    def __str__(self) -> str:
        return f"perplexity {self.perplexity:.2f}, BLEU {self.bleu:.2f}, {self.parameters:,} parameters"


def _changed(row: str) -> str:
    """The options in which a row differs from base, at the paper's size."""
    options = {"N" if name == "encoder_layers" else name: value for name, value in paper.TABLE_3[row].options.items()}
    options.pop("decoder_layers", None)  # N, too.
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "–"


def _known(value: float, form: str) -> str:
    """Formats a number; an unknown one is empty."""
    return "" if math.isnan(value) else format(value, form)


def _table(results: list[Result]) -> list[list[str]]:
    """The cells of the table, with its header. Differences are to base; they are empty if base is missing."""
    base = next((result for result in results if result.row == "base"), None)
    header = [
        "row", "changes at the paper's size", "perplexity", "BLEU", "difference", "paper: perplexity", "BLEU",
        "difference", "parameters", "at the paper's size", "paper: 10⁶", "updates", "target tokens/s", "FLOPs",
    ]  # fmt: skip
    rows = []
    for result in results:
        printed = paper.TABLE_3[result.row]
        ours = f"{result.bleu - base.bleu:+.1f}" if base and result is not base else ""
        theirs = f"{printed.bleu - paper.TABLE_3['base'].bleu:+.1f}" if result.row != "base" else ""
        if ours and abs(result.bleu - base.bleu) > NOISE:
            ours = f"**{ours}**"
        rows.append([
            result.row, _changed(result.row), f"{result.perplexity:.2f}", f"{result.bleu:.1f}", ours,
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
    """Returns one line for each row, with the figures of `Result`, the row's options, and the options and figures of
    the paper.
    """
    text = io.StringIO()
    fields = [field.name for field in dataclasses.fields(Result) if field.name != "options"]
    options = paper.OPTIONS_OF_ROWS
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [*fields, *options, *(f"paper_{name}" for name in (*options, "perplexity", "bleu", "parameters_in_millions"))]
    )
    for result in results:
        printed, values = paper.TABLE_3[result.row], paper.table_3(result.row)
        writer.writerow([
            *(getattr(result, name) for name in fields), *(result.options[name] for name in options),
            *(values[name] for name in options), printed.perplexity, printed.bleu, printed.parameters or "",
        ])  # fmt: skip
    return text.getvalue()


def picture(results: list[Result]) -> bytes:
    """Draws each row's difference from base in BLEU, ours beside the paper's, as a PNG.

    Args:
        results: base, and at least one other row after it.
    """
    base, *rows = results
    with figures.drawing():
        figure = figures.new_figure()
        figure.set_size_inches(9, 1.3 + 0.34 * len(rows))
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        places = range(len(rows))
        ours = [result.bleu - base.bleu for result in rows]
        theirs = [paper.TABLE_3[result.row].bleu - paper.TABLE_3["base"].bleu for result in rows]
        axes.axvspan(-NOISE, NOISE, color="#EEEEEE", label=f"±{NOISE} BLEU, about the noise of one seed")
        axes.axvline(0, color="#666666", linewidth=0.8)
        axes.barh([place - 0.19 for place in places], ours, height=0.36, color=figures.PALETTE[0], label="ours")
        axes.barh(
            [place + 0.19 for place in places], theirs, height=0.36, color=figures.PALETTE[4], label="the paper's"
        )
        axes.set_yticks(list(places), [f"{result.row}:  {_changed(result.row)}" for result in rows])
        axes.invert_yaxis()
        axes.set_xlabel(f"BLEU minus that of base (ours: {base.bleu:.1f}, the paper's: {paper.TABLE_3['base'].bleu})")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    return figures.encoded(figure, "png", 130)
