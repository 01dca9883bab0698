"""Trains a Transformer: prepares the data, learns sub-words, trains and validates. Run again, it resumes.

python tools/train.py --flagfile=small --train_source=a.en --train_target=a.de --valid_pairs=500 --model_dir=runs/x
python tools/train.py --flagfile=wmt14_en_de_base --model_dir=runs/base
python tools/train.py --flagfile=quickstart --model=table3/A16 --divide_widths=4 --model_dir=runs/a16  # Row of Table 3.
python tools/train.py --architecture=rnn --dataset=builtin --vocab_size=400 --d_model=128 --batch_tokens=3072 \\
    --train_steps=800 --warmup_steps=300 --learning_rate_factor=0.7 --model_dir=runs/rnn
python tools/train.py --model_dir=runs/base  # Resumes a run with its own options.
"""

from t2t_keras.cli import flags as options
from t2t_keras.cli import messages, training

training.define()
options.define_table_3()


def train() -> None:
    given, sources = options.with_table_3(options.given_run(), options.sources())
    if chosen := training.train(given, sources):
        advice = f" Translate with: {messages.command('translate', training.model_dir())} < text"
        print(f"Trained.{advice * chosen.task.generates}")


def main() -> None:
    training.run(train)


if __name__ == "__main__":
    main()
