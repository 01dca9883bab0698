"""Draws a comparison of systems: their BLEU against the length of sentences."""

from t2t_keras.reporting import figures


def bleu_by_length(comparison: dict):
    """Draws the BLEU of each system on the groups of sentences by length, from short to long. `comparison` has the
    fields of an `evaluation.comparison.Comparison`, as of `dataclasses.asdict`.
    """
    baseline, *others = comparison["systems"]
    groups = others[0]["lengths"]
    bounds = [sorted({group["shortest"], group["longest"]}) for group in groups]
    ticks = [
        f"{'–'.join(map(str, bound))}\n({group['sentences']:,})" for bound, group in zip(bounds, groups, strict=True)
    ]
    lines = [(figures.label(baseline["name"]), [group["baseline_bleu"] for group in groups])]
    lines += [(figures.label(system["name"]), [group["bleu"] for group in system["lengths"]]) for system in others]
    with figures.drawing():
        figure = figures.new_figure(6.4, 3.6, "constrained")
        axes = figure.subplots()
        for index, (_, bleus) in enumerate(lines):
            color = figures.PALETTE[index % len(figures.PALETTE)]
            axes.plot(range(len(groups)), bleus, color=color, marker="o", markersize=5, linewidth=1.6)
        axes.set_xticks(range(len(groups)), ticks, fontsize=8)
        axes.set_xlabel(f"tokens of the {comparison['length_of']} (number of sentences)", fontsize=8)
        axes.set_ylabel("BLEU", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", color="#E0E0E0", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        style = figures.text_style((name for name, _ in lines), 8)
        legend = axes.legend(axes.lines, [name for name, _ in lines], frameon=False)
        for text in legend.get_texts():
            text.set(**style)
    return figure
