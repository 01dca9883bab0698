"""Draws the curves of several training runs in one picture: loss, BLEU, learning rate and speed.

python tools/curves.py runs/base runs/big
python tools/curves.py runs/* --output=comparison.png
"""

import pathlib

from absl import flags

from t2t_keras.cli import program

_OUTPUT = flags.DEFINE_string("output", "curves.png", "The picture, a PNG.")


def draw(runs: list[str]) -> None:
    from t2t_keras.reporting import curves

    output = pathlib.Path(_OUTPUT.value).expanduser()
    curves.compare([pathlib.Path(run).expanduser() for run in runs], output)
    print(f"Wrote {output}.")


def main() -> None:
    program.run(draw, operands="the folder of a training run, or several")


if __name__ == "__main__":
    main()
