"""Tables in Markdown."""

from collections.abc import Collection, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = (), padded: bool = False) -> str:
    """Returns a table.

    Args:
        head: names of the columns.
        rows: cells of each row. A "|" and line breaks in them are escaped.
        right: names of the columns whose cells are aligned at the right.
        padded: whether the cells of a column are as long as the longest, for reading as plain text.
    """
    rule = ["---:" if name in right else "---" for name in head]
    lines = [[cell.replace("|", "\\|").replace("\n", "\\n") for cell in row] for row in (head, rule, *rows)]
    widths = [max(map(len, column)) if padded else 0 for column in zip(*lines, strict=True)]
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in lines)
