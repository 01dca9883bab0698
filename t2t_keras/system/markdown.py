"""Tables in Markdown."""

from collections.abc import Collection, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = (), padded: bool = False) -> str:
    """Returns a table. A "|" and line breaks in cells are escaped. `right` names the columns that are aligned at the
    right; with `padded`, the cells of a column are as long as the longest, for reading as plain text.
    """
    rule = ["---:" if name in right else "---" for name in head]
    lines = [[cell.replace("|", "\\|").replace("\n", "\\n") for cell in row] for row in (head, rule, *rows)]
    widths = [max(map(len, column)) if padded else 0 for column in zip(*lines, strict=True)]
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in lines)
