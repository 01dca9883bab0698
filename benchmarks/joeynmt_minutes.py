r"""Measures the BLEU of JoeyNMT by minutes of training on small text, for docs/results.md's table of small corpora.

    python -m venv joey
    joey/bin/pip install --no-deps joeynmt subword-nmt    # Its requirements ask for versions that are gone.
    joey/bin/pip install torch==2.13.0 'sentencepiece<0.2.1' sacrebleu sacremoses numpy pyyaml tensorboard matplotlib \
        seaborn pandas pillow 'setuptools<80' six wrapt datasets packaging 'importlib_metadata<8' zipp
    joey/bin/python benchmarks/joeynmt_minutes.py --train=8000 --test=test_2016_flickr --languages=en,fr \
        --folder=/tmp/joey --minutes=5,10,20 --recipe=iwslt14

Give raw text: 8000.en and 8000.fr are the training text, of which the last `--valid_pairs` validate, as with our
`--valid_pairs`. Joint sub-words are learned by SentencePiece first. Neither that time counts nor that of validations,
each of which saves a checkpoint. For each number of minutes, the checkpoint with the best validation BLEU until then
translates the test text with beam 5 and length penalty 1, as JoeyNMT's configurations do.

Recipes:

- `iwslt14`: JoeyNMT's configs/iwslt14_deen_bpe.yaml, its recipe for 160,000 pairs, with fewer sub-words.
- `ours`: the sizes, dropout, batches and warm-up of configs/small.

JoeyNMT computes in float32 on CPUs. The environment needs no TensorFlow, and this file none of t2t_keras.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import time

import sacrebleu
import sentencepiece
import yaml

RECIPES = {
    "iwslt14": (
        {"num_layers": 6, "num_heads": 4, "hidden_size": 256, "ff_size": 1024, "dropout": 0.3},
        {
            "adam_betas": [0.9, 0.999], "scheduling": "plateau", "patience": 5, "decrease_factor": 0.7,
            "learning_rate": 3e-4,
        },
    ),
    "ours": (
        {"num_layers": 4, "num_heads": 4, "hidden_size": 128, "ff_size": 256, "dropout": 0.2},
        {
            "adam_betas": [0.9, 0.98], "scheduling": "noam", "learning_rate_factor": 0.8, "learning_rate_warmup": 200,
            "learning_rate": 1e-3,
        },
    ),
}  # fmt: skip
# JoeyNMT 2.3 gives the scheduler of its recipe an argument that PyTorch no longer has.
RUN = """
import runpy
from torch.optim import lr_scheduler

class Plateau(lr_scheduler.ReduceLROnPlateau):
    def __init__(self, *args, verbose=False, **options):
        super().__init__(*args, **options)

lr_scheduler.ReduceLROnPlateau = Plateau
runpy.run_module("joeynmt", run_name="__main__")
"""
SPECIAL = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="path of the training text without .LANGUAGE")
    parser.add_argument("--test", required=True, help="path of the test text without .LANGUAGE")
    parser.add_argument("--languages", required=True, help="of source and target, as en,fr")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="a new folder")
    parser.add_argument("--minutes", default="5,10,20")
    parser.add_argument("--recipe", choices=RECIPES, default="iwslt14")
    parser.add_argument("--valid_pairs", type=int, default=500)
    parser.add_argument("--vocab_size", type=int, default=4000)
    parser.add_argument("--valid_steps", type=int, default=200)
    return parser.parse_args()


def prepare(args: argparse.Namespace) -> None:
    """Divides the text, and learns sub-words from the training part of both languages."""
    for language in args.languages.split(","):
        lines = pathlib.Path(f"{args.train}.{language}").read_text("utf-8").splitlines(keepends=True)
        for name, part in (("train", lines[: -args.valid_pairs]), ("dev", lines[-args.valid_pairs :])):
            (args.folder / f"{name}.{language}").write_text("".join(part), "utf-8")
        test = pathlib.Path(f"{args.test}.{language}").read_text("utf-8")
        (args.folder / f"test.{language}").write_text(test, "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=[str(args.folder / f"train.{language}") for language in args.languages.split(",")],
        model_prefix=str(args.folder / "sp"),
        model_type="bpe",
        vocab_size=args.vocab_size,
        character_coverage=1.0,
        minloglevel=1,
        **{f"{name}_id": number for number, name in enumerate(SPECIAL)},
        **{f"{name}_piece": piece for name, piece in SPECIAL.items()},
    )
    pieces = [line.split("\t")[0] for line in (args.folder / "sp.vocab").read_text("utf-8").splitlines()]
    (args.folder / "vocabulary").write_text("\n".join(pieces) + "\n", "utf-8")


def configuration(args: argparse.Namespace) -> dict:
    sizes, schedule = RECIPES[args.recipe]
    side = {
        "level": "bpe", "max_length": 256, "voc_file": f"{args.folder}/vocabulary", "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": f"{args.folder}/sp.model", "pretokenizer": "none"},
    }  # fmt: skip
    source, target = args.languages.split(",")
    layers = {"type": "transformer", "layer_norm": "pre", "activation": "relu", **sizes}
    layers["embeddings"] = {"embedding_dim": sizes["hidden_size"], "scale": True}
    special = {f"{name}_token": piece for name, piece in SPECIAL.items()}
    special |= {f"{name}_id": number for number, name in enumerate(SPECIAL)}
    return {
        "name": args.recipe, "joeynmt_version": "2.3.0", "model_dir": f"{args.folder}/model", "use_cuda": False,
        "random_seed": 42,
        "data": {
            "train": f"{args.folder}/train", "dev": f"{args.folder}/dev", "test": f"{args.folder}/test",
            "dataset_type": "plain", "src": side | {"lang": source}, "trg": side | {"lang": target},
            "special_symbols": special,
        },
        "testing": {
            "n_best": 1, "beam_size": 5, "beam_alpha": 1.0, "batch_size": 1024, "batch_type": "token",
            "max_output_length": 100, "eval_metrics": ["bleu"], "sacrebleu_cfg": {"tokenize": "13a"},
        },
        "training": {
            "optimizer": "adamw", "normalization": "tokens", "loss": "crossentropy", "learning_rate_min": 1e-8,
            "weight_decay": 0.0, "label_smoothing": 0.1, "batch_size": 4096, "batch_type": "token",
            "early_stopping_metric": "bleu", "epochs": 10_000, "validation_freq": args.valid_steps, "logging_freq": 10,
            "shuffle": True, "print_valid_sents": [0], "keep_best_ckpts": -1, **schedule,
        },
        "model": {
            "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "tied_embeddings": True,
            "tied_softmax": True, "encoder": layers, "decoder": layers,
        },
    }  # fmt: skip


def train(args: argparse.Namespace, config: dict, minutes: int) -> list[tuple[float, int, float]]:
    """Trains for a number of minutes. Returns minutes, update and BLEU of validations, whose time does not count."""
    path, log = args.folder / "train.yaml", args.folder / "model" / "train.log"
    path.write_text(yaml.safe_dump(config), "utf-8")
    with subprocess.Popen([sys.executable, "-c", RUN, "train", path, "--skip-test"]) as process:
        while process.poll() is None and not (log.exists() and trained(log)[0] >= minutes):
            time.sleep(1)
        if process.poll() is not None:
            sys.exit(f"JoeyNMT ended before {minutes} minutes, with exit code {process.returncode}.")
        process.terminate()
    return trained(log)[1]


def trained(log: pathlib.Path) -> tuple[float, list[tuple[float, int, float]]]:
    """Returns the minutes of training up to now, and what `train` returns, from JoeyNMT's log."""
    begun = validating = step = None
    excluded, found = 0.0, []
    for line in log.read_text("utf-8").splitlines():
        if not (match := re.match(r"(\d{4}-\S+ \S+) - INFO - \S+ - (.*)", line)):
            continue
        at, said = datetime.datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp(), match[2]
        if said.startswith("EPOCH") and begun is None:
            begun = at
        elif said.startswith("Predicting"):
            validating = at
        elif at_step := re.search(r"Step: +(\d+)", said):
            step = int(at_step[1])
        elif score := re.search(r"bleu: +([\d.]+)", said):
            found.append(((validating - begun - excluded) / 60, step, float(score[1])))
            excluded += at - validating
            validating = None
    now = time.time() if validating is None else validating
    return (now - begun - excluded) / 60 if begun else 0.0, found


def score(args: argparse.Namespace, config: dict, step: int) -> dict:
    """Returns the BLEU of the test text, translated by a checkpoint."""
    path = args.folder / "test.yaml"
    config["testing"]["load_model"] = f"{args.folder}/model/{step}.ckpt"
    path.write_text(yaml.safe_dump(config), "utf-8")
    subprocess.run([sys.executable, "-c", RUN, "test", path, "-o", args.folder / f"{step}.out"], check=True)
    target = args.languages.split(",")[1]
    references = (args.folder / f"test.{target}").read_text("utf-8").splitlines()
    metric = sacrebleu.metrics.BLEU()
    bleu = metric.corpus_score((args.folder / f"{step}.out.test").read_text("utf-8").splitlines(), [references])
    return {"bleu": round(bleu.score, 2), "signature": str(metric.get_signature())}


def main() -> None:
    args = arguments()
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True)
    prepare(args)
    config = configuration(args)
    marks = [int(minutes) for minutes in args.minutes.split(",")]
    validations = train(args, config, max(marks))
    for mark in marks:
        before = [entry for entry in validations if entry[0] <= mark]
        if not before:
            print(json.dumps({"minutes": mark, "bleu": None, "updates": 0}))
            continue
        _, step, valid = max(before, key=lambda entry: entry[2])
        of_validation = {"minutes": mark, "updates": before[-1][1], "best": step, "valid_bleu": valid}
        print(json.dumps(of_validation | score(args, config, step)))


if __name__ == "__main__":
    main()
