"""Tables in Markdown, compared with tables written by hand."""

from t2t_keras.system import markdown


def test_columns_are_aligned_and_what_has_a_meaning_in_a_table_is_escaped():
    assert markdown.table(("name", "ms"), [("a|b", "1"), ("two\nlines", "10")], right=("ms",)) == (
        "| name | ms |\n"
        "| --- | ---: |\n"
        "| a\\|b | 1 |\n"
        "| two\\nlines | 10 |"
    )  # fmt: skip


def test_a_padded_table_reads_as_plain_text():
    assert markdown.table(("option", "value"), [("d_ff", "100"), ("seed", "")], padded=True) == (
        "| option | value |\n"
        "| ---    | ---   |\n"
        "| d_ff   | 100   |\n"
        "| seed   |       |"
    )  # fmt: skip


def test_a_table_may_have_no_rows():
    assert markdown.table(("a",), []) == "| a |\n| --- |"
