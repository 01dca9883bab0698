"""Measures Table 1 (section 4): time, memory, sequential operations and path lengths of layers against the sequence
length n.

python tools/table1.py --json=table1.json --output=table1.png    # measures, prints a Markdown table, draws a picture
python tools/table1.py --json=table1.json --output=table1.png    # again: measures what is missing in the file
"""

import contextlib
import pathlib

from absl import flags

from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from t2t_keras.text import lines

_D = flags.DEFINE_integer("d", 512, "Width of the layers.", lower_bound=1)
_HEADS = flags.DEFINE_integer("heads", 8, "Number of attention heads; it divides --d.", lower_bound=1)
_WINDOW = flags.DEFINE_integer("window", 64, "Neighborhood of restricted self-attention, r.", lower_bound=2)
_KERNEL = flags.DEFINE_integer("kernel", 3, "Kernel width of convolutions, k; odd.", lower_bound=3)
_LENGTHS = flags.DEFINE_list("lengths", ["64", "128", "256", "512", "1024", "2048", "4096"], "Sequence lengths, n.")
_FIT_FROM = flags.DEFINE_integer("fit_from", 512, "Smallest length that the exponents are fitted to.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of measurements of each time.", lower_bound=1)
_JSON = flags.DEFINE_string("json", "", "File of the measurements; an existing one is extended. Empty keeps none.")
_OUTPUT = flags.DEFINE_string("output", "", "Picture to draw: a PNG or SVG file; empty draws none.")


def measure() -> None:
    lengths, output = options.positive_numbers(_LENGTHS), pathlib.Path(_OUTPUT.value).expanduser()
    with program.without_noise():
        from t2t_keras.experiments import table1
        from t2t_keras.reporting import figures

    picture_format = figures.format_of(output) if _OUTPUT.value else ""
    settings = table1.Settings(_D.value, _HEADS.value, _WINDOW.value, _KERNEL.value)
    with lines.written_whole(output) if picture_format else contextlib.nullcontext() as picture:
        results = table1.measure(
            settings, lengths, _ROUNDS.value, pathlib.Path(_JSON.value).expanduser() if _JSON.value else None
        )
        print(f"{results['machine']}; {settings}.\n\n{table1.table(results, _FIT_FROM.value)}")
        if picture:
            picture.write(figures.encoded(table1.picture(results, _FIT_FROM.value), picture_format))


def main() -> None:
    program.run(measure)


if __name__ == "__main__":
    main()
