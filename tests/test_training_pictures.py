"""Pictures of attention in TensorBoard: of fixed sentences, never a reason to stop."""

import types

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import DecodeConfig
from t2t_keras.reporting import pictures
from t2t_keras.reporting.pictures import attention_images

LONG = " ".join(["one"] * 50)
PAIRS = [("", "one"), (LONG, "one"), ("one two", LONG), ("one two", "two one"), ("three", "three"), ("two", "two")]


@pytest.fixture
def translator():
    return stand_in.translator(DecodeConfig(), frozen=False)


def test_the_first_pairs_that_fit_are_drawn(translator):
    drawn = attention_images(translator, PAIRS, 2)()
    assert list(drawn) == ["attention_1", "attention_2"]
    for image in drawn.values():
        assert image.dtype == np.uint8 and image.shape[0] == 1 and image.shape[3] == 3
        assert 100 < image.shape[1] < 2000 and 100 < image.shape[2] < 2000
        assert (image == 255).mean() > 0.3 and len(np.unique(image)) > 20  # White, with a picture on it.
    assert (
        drawn["attention_1"].shape != drawn["attention_2"].shape or (drawn["attention_1"] != drawn["attention_2"]).any()
    )
    assert attention_images(translator, PAIRS, 0)() == {} and attention_images(translator, [], 3)() == {}


@pytest.mark.parametrize(("longest", "drawn"), [(4, [0, 1, 2]), (3, [0, 2]), (2, [2])])
def test_a_pair_fits_if_both_sides_are_neither_empty_nor_longer_than_the_largest(
    translator, monkeypatch, longest, drawn
):
    """In sub-words of each side's own, with the end token: 3 and 3, 3 and 4, 2 and 2, then an empty side."""
    numbers = {"a": 2, "b c": 3, "": 1}, {"A": 2, "B C": 3, "D E F": 4, "": 1}
    sides = [("b c", "B C"), ("b c", "D E F"), ("a", "A"), ("", "A"), ("a", "")]
    source, target = (
        types.SimpleNamespace(
            tokenize=lambda lines, number_of=number_of: tf.ragged.constant([[7] * number_of[line] for line in lines])
        )
        for number_of in numbers
    )
    stands_in = types.SimpleNamespace(model=translator.model, source_tokenizer=source, tokenizer=target)
    monkeypatch.setattr(pictures, "MAX_PIECES", longest)
    monkeypatch.setattr(pictures, "attention_of", lambda translator, *pair: pair)
    monkeypatch.setattr(pictures.attention_pictures, "heat_maps", lambda pair: pair)
    monkeypatch.setattr(pictures, "_as_image", lambda pair: pair)
    assert list(attention_images(stands_in, sides, 5)().values()) == [sides[index] for index in drawn]


def test_a_picture_has_80_pixels_for_an_inch(translator):
    figure = pictures.attention_pictures.heat_maps(pictures.attention_of(translator, "one two", "two one"))
    width, height = figure.get_size_inches()
    image = pictures._as_image(figure)
    assert image.shape == (1, int(80 * height), int(80 * width), 3)


def test_the_same_sentence_is_drawn_again_with_the_weights_of_the_moment(translator):
    draw = attention_images(translator, PAIRS, 1)
    first, again = draw()["attention_1"], draw()["attention_1"]
    np.testing.assert_array_equal(first, again)
    for weight in translator.model.trainable_variables:
        weight.assign(weight * -3)
    assert (draw()["attention_1"] != first).any()


def test_a_picture_that_fails_is_reported_once_and_the_others_are_drawn(translator, monkeypatch, messages):
    real = pictures.attention_of

    def fails(translator, source, target):
        if source == "three":
            raise OSError("no font")
        return real(translator, source, target)

    monkeypatch.setattr(pictures, "attention_of", fails)
    draw = attention_images(translator, PAIRS, 3)
    assert list(draw()) == list(draw()) == ["attention_1", "attention_3"]
    assert messages == ["Could not write attention to TensorBoard (no font). Training continues without it."]
