"""Draws the attention weights of sentences: pictures of lines and heat maps, and a web page.

python tools/attention.py --model_dir=runs/x --output=pictures < sentences.en
python tools/attention.py --model_dir=runs/x --output=pictures --input=text.en --target=text.de --layer=all --format=svg
"""

import dataclasses
import itertools
import pathlib

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.config import DecodeConfig
from t2t_keras.reporting import figures
from t2t_keras.runs import run_options
from t2t_keras.system.log import logger
from t2t_keras.text import lines

_KINDS = ("encoder", "decoder", "cross")
_OUTPUT = flags.DEFINE_string("output", None, "Write pictures and attention.html to this folder.", required=True)
_INPUT = flags.DEFINE_string("input", "", "Sentences, one a line, plain or gzip; empty: standard input.")
_TARGET = flags.DEFINE_string("target", "", "Their translations, one a line; empty: the model translates.")
_ATTENTION = flags.DEFINE_list(
    "attention",
    None,
    "Draw these: encoder, decoder (self-attention) and cross (decoder to source). The default is all that the model "
    "has.",
)
_LAYER = flags.DEFINE_list(
    "layer", [], "Draw these layers, counted from 1, or all; empty: the last but one, as the paper does."
)
_HEADS = flags.DEFINE_list("heads", [], "Draw these heads, counted from 1; empty: all.")
_WORDS = flags.DEFINE_boolean("words", False, "Draw words in place of sub-words. The page has both.")
_FORMAT = flags.DEFINE_list("format", ["png"], "Formats of pictures: png, svg or png,svg; none: only the page.")
options.define_trained_model(several=False)
options.excludes("target", *(field.name for field in dataclasses.fields(DecodeConfig) if field.name != "max_input"))


def _chosen(flag, known) -> list[str]:
    """The values of a list flag."""
    values = list(dict.fromkeys(value.strip() for value in flag.value))
    if not values or set(values) - set(known):
        raise ValueError(
            f"Expected {', '.join(known)} as --{flag.name}. Received: {','.join(flag.value) or 'nothing'}."
        )
    return values


def _numbers(flag, most: int) -> list[int]:
    """The values of a list flag, which count from 1 → counted from 0."""
    if wrong := [value for value in flag.value if not (value.strip().isdecimal() and 1 <= int(value) <= most)]:
        raise ValueError(f"--{flag.name} must be numbers from 1 to {most}. Received: {', '.join(wrong)}.")
    return list(dict.fromkeys(int(value) - 1 for value in flag.value))


def _layers(kinds: list[str], layers: dict[str, int]) -> list[tuple[str, int]]:
    """Each kind of attention with each layer to draw, counted from 0."""
    found = []
    for kind in kinds:
        number = layers[kind]
        chosen = range(number) if _LAYER.value == ["all"] else _numbers(_LAYER, number) or [max(0, number - 2)]
        found += [(kind, layer) for layer in chosen]
    return found


def _read(path: str) -> list[str]:
    """The lines of a file, or of standard input."""
    with lines.opened(path) as file:
        return list(lines.read_lines(file))


def _sentences() -> list[tuple[int, str, str | None]]:
    """Line number, source and target of each line that is not blank."""
    sources = _read(_INPUT.value)
    targets = _read(_TARGET.value) if _TARGET.value else [None] * len(sources)
    if len(sources) != len(targets):
        raise ValueError(
            f"--target must have a line for each sentence. Received: {len(targets):,} for {len(sources):,} sentences."
        )
    pairs = enumerate(zip(sources, targets, strict=True), 1)
    found = [(number, *pair) for number, pair in pairs if not lines.is_blank(pair[0])]
    if not found:
        raise ValueError("There is no sentence to show: all lines are blank.")
    return found


def draw() -> None:
    model = options.trained_model()
    if len(model.runs) > 1:
        raise ValueError(f"The attention of an ensemble cannot be drawn. Give one run, not {len(model.runs)}.")
    [run] = model.runs
    config = run.model
    if run.architecture == run_options.TRANSFORMER:
        number = dict(zip(_KINDS, (config.encoder_layers, config.decoder_layers, config.decoder_layers), strict=True))
        number_of_heads = config.num_heads
    else:  # What another architecture has is its alignment.
        number, number_of_heads = {"cross": 1}, 1
    kinds = list(number) if _ATTENTION.value is None else _chosen(_ATTENTION, number)
    formats = [format_ for format_ in _chosen(_FORMAT, (*figures.FORMATS, "none")) if format_ != "none"]
    layers, heads = _layers(kinds, number), _numbers(_HEADS, number_of_heads) or None
    sentences = _sentences()
    folder = pathlib.Path(_OUTPUT.value).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    import tqdm

    with program.without_noise():
        from t2t_keras.reporting import attention_pictures, pages
        from t2t_keras.reporting.attention import attention_of, check_attention

        translator = model.load()
        check_attention(translator.model)
    makers = {"lines": attention_pictures.line_picture, "heat_maps": attention_pictures.heat_maps}
    shown, pictures = {}, 0
    # None: unless stderr is a terminal.
    for number, source, target in tqdm.tqdm(sentences, unit=" sentences", disable=None):
        try:
            attention = attention_of(translator, source, target)
        except ValueError as error:  # Such as a sentence that is too long.
            logger.warning(f"Skipping line {number}: {error}")
            continue
        shown[number] = attention
        drawn = attention.by_words() if _WORDS.value else attention
        for (kind, layer), format_, (name, make) in itertools.product(layers, formats, makers.items()):
            path = folder / f"{number:03}_{kind}_layer_{layer + 1}_{name}.{format_}"
            figures.save(make(drawn, kind, layer, heads), path)
            pictures += 1
    if not shown:
        raise ValueError("No sentence is left to show: all were skipped, as above.")
    page = folder / "attention.html"
    with lines.written_whole(page) as file:
        file.write(pages.attention_page(shown).encode())
    print(f"Wrote {page} and {pictures} picture(s) of {len(shown)} sentence(s).")


def main() -> None:
    program.run(draw)


if __name__ == "__main__":
    main()
