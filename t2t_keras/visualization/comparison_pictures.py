"""Draws a comparison of systems: their BLEU against the length of sentences."""

from t2t_keras.visualization import figures


def bleu_by_length(comparison: dict):
    """Draws the BLEU of each system on the groups of sentences by length, from short to long.

    Args:
        comparison: the fields of an `evaluation.comparison.Comparison`, as of `dataclasses.asdict`.
    """
    baseline, *others = comparison["systems"]
    groups = others[0]["lengths"]
    bounds = [sorted({group["shortest"], group["longest"]}) for group in groups]
    ticks = [f"{'–'.join(map(str, bound))}\n({group['sentences']:,})" for bound, group in zip(bounds, groups, strict=True)]
    lines = [(baseline["name"], [group["baseline_bleu"] for group in groups])]
    lines += [(system["name"], [group["bleu"] for group in system["lengths"]]) for system in others]
    with figures.drawing():
        figure = figures.new_figure()
        figure.set_size_inches(6.4, 3.6)
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        for index, (name, bleus) in enumerate(lines):
            color = figures.PALETTE[index % len(figures.PALETTE)]
            axes.plot(range(len(groups)), bleus, color=color, marker="o", markersize=5, linewidth=1.6, label=figures.label(name))
        axes.set_xticks(range(len(groups)), ticks, fontsize=8)
        axes.set_xlabel(f"tokens of the {comparison['length_of']} (number of sentences)", fontsize=8)
        axes.set_ylabel("BLEU", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(True, axis="y", color="#E0E0E0", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
    return figure
