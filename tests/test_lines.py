"""Line n of what comes out belongs to line n of what came in, whatever bytes the lines hold."""

import io

from t2t_keras import lines


def test_only_a_line_feed_ends_a_line_and_a_byte_order_mark_is_dropped():
    stream = io.BytesIO(b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\n\xff\x00 \xe2\x80\xa8 \xc2\x85\r \x0b\n\nlast")
    found = list(lines.read_lines(stream))
    assert found == ["one", "\ufefftwo", "\ufffd\x00 \u2028 \x85\r \x0b", "", "last"]


def test_what_a_model_wrote_is_one_line():
    assert lines.one_line("one\ntwo\r\u2028 three") == "one two\r\u2028 three"
