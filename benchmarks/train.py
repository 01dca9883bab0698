"""Compares training speed with PyTorch, Marian (Hugging Face), KerasHub and JoeyNMT: same model, dropout, loss, Adam,
batches and dtype.

python benchmarks/train.py --config=base --dtype=bfloat16
python benchmarks/train.py --config=multi30k --source=train.en --target=train.de --dtype=float32 --json
python benchmarks/train.py --config=multi30k --layers=1 --batch_tokens=400 --updates=2 --rounds=1 # a trial of some
minutes

Every contestant has a process of its own, and only one computes at a time; the others are stopped. A peer is measured
in turns with t2t_keras in all of its rounds, so that memory holds two models at most and no process starts twice. In a
round, both make the same updates, and the machine's matrix products are measured. Ratios are those of a round; the
table has medians. The machine must be idle otherwise: the threads of PyTorch wait for one another, and another program
on one core slows it down many times.

- Speed: real target tokens per second, without padding.
- Memory: the peak of the resident memory (Linux only).
- First step: from the start of the process to the end of its first update. That of t2t_keras includes a trial of the
  largest micro-batches, as in every run.
- Share of the ceiling: the operations of the update's matrix products, padding included (t2t_keras.model.flops), per
  second, divided by the rate of the best of some large matrix products of TensorFlow and PyTorch in that dtype.

First, each contestant trains a smaller model (two layers, float32, no dropout) from the same weights, on small updates:
a peer whose losses differ from ours computes something else, and is not timed. To install the peers: pip install -e
'.[bench]'. For a peer in an environment of its own: --python=NAME=PATH. OpenNMT-py 3.5 needs torch<2.3, and the decoder
of Eole 0.6 is pre-norm, so neither is among the peers.
"""

import dataclasses
import json
import os
import pathlib
import sys
import tempfile

from absl import flags

# `python benchmarks/train.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks import flagfiles
from benchmarks.train_peers.contestants import CEILINGS, OURS, PEERS, Contestant, versions
from benchmarks.train_peers.results import summary, table
from t2t_keras.cli import program
from t2t_keras.config import DataConfig, ModelConfig, TrainConfig, paper
from t2t_keras.system.machine import cpu

_CONFIG = flags.DEFINE_enum(
    "config", "base", ["base", "big", "multi30k"], "Model: a row of Table 3, or configs/multi30k_en_de.flags."
)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Type of the arithmetic; weights are float32.")
_ROUNDS = flags.DEFINE_integer(
    "rounds", 5, "Number of measurements of each peer, in turns with t2t_keras.", lower_bound=1
)
_UPDATES = flags.DEFINE_integer(
    "updates", 0, "Number of updates in a round; 0: 4 of base, 2 of big, 8 of Multi30k's.", lower_bound=0
)
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", 0, "Size of the vocabulary; 0: 32,000, or that of Multi30k's config.", lower_bound=0
)
_LAYERS = flags.DEFINE_integer(
    "layers", 0, "Number of layers of encoder and decoder; 0: those of the model.", lower_bound=0
)
_BATCH_TOKENS = flags.DEFINE_integer(
    "batch_tokens",
    0,
    "Tokens of an update on each side, padding included; 0: 2,048, or those of Multi30k's config.",
    lower_bound=0,
)
_BUCKETS = flags.DEFINE_integer(
    "buckets_per_update", 0, "Number of micro-batches of an update; 0: 1, or that of Multi30k's config.", lower_bound=0
)
_SOURCE = flags.DEFINE_string(
    "source", "", "With --config=multi30k: its training text in English, one sentence per line."
)
_TARGET = flags.DEFINE_string("target", "", "With --config=multi30k: its training text in German.")
_DATA_DIR = flags.DEFINE_string("data_dir", "", "Folder of prepared data to take the batches from, instead of text.")
_CONTESTANTS = flags.DEFINE_list(
    "contestants", [], "Peers to compare with, by name or beginning of the name; empty: all."
)
_CHECK_UPDATES = flags.DEFINE_integer(
    "check_updates", 50, "Number of updates whose losses are compared; 0 compares none.", lower_bound=0
)
_PYTHON = flags.DEFINE_multi_string(
    "python", [], "Interpreter that a peer is installed with, as NAME=PATH; NAME may be a beginning."
)
_JSON = flags.DEFINE_boolean("json", False, "Print one JSON object.")


def configs() -> tuple[ModelConfig, TrainConfig]:
    """Returns the model and the training options that the flags ask for."""
    if _CONFIG.value == "multi30k":
        model, train = (flagfiles.options("multi30k_en_de", group) for group in (ModelConfig, TrainConfig))
    else:
        model = dataclasses.asdict(paper.model(_CONFIG.value, vocab_size=32_000))
        train = {"batch_tokens": 2048, "buckets_per_update": 1}
    changes = {"vocab_size": _VOCAB_SIZE.value, "encoder_layers": _LAYERS.value, "decoder_layers": _LAYERS.value}
    model |= {name: value for name, value in changes.items() if value}
    changes = {"batch_tokens": _BATCH_TOKENS.value, "buckets_per_update": _BUCKETS.value}
    train |= {name: value for name, value in changes.items() if value} | {"dtype": _DTYPE.value}
    return ModelConfig(**model), TrainConfig(**train)


def write_pairs(folder: pathlib.Path, model: ModelConfig) -> tuple[pathlib.Path, str]:
    """Writes the pairs that the batches are made of. Returns the folder of the shards, and what they are. Raises
    `ValueError` if the flags name too much or too little text, or the data has other sub-words.
    """
    from benchmarks.train_peers.batches import write_random_pairs, write_text_pairs
    from t2t_keras.data import shards

    if bool(_SOURCE.value) != bool(_TARGET.value):
        raise ValueError(
            f"Expected both of --source and --target, or neither. Received: {_SOURCE.value or _TARGET.value}."
        )
    if _SOURCE.value and _DATA_DIR.value:
        raise ValueError("Expected --source and --target, or --data_dir. Received both.")
    if _SOURCE.value and _CONFIG.value != "multi30k":
        raise ValueError(
            f"Expected --source and --target with --config=multi30k only. Received: --config={_CONFIG.value}."
        )
    if _DATA_DIR.value:
        folder = pathlib.Path(_DATA_DIR.value).expanduser() / "train"
        if (size := shards.read_info(folder)["vocab_size"]) > model.vocab_size:
            raise ValueError(
                f"Expected --vocab_size of at least {size}, as the data in {folder}. Received: {model.vocab_size}."
            )
        return folder, f"the data in {_DATA_DIR.value}"
    if _CONFIG.value != "multi30k":
        write_random_pairs(folder, model.vocab_size)
        return folder, "random ids, lengths as in newstest"
    if _SOURCE.value:
        paths = [os.path.expanduser(path) for path in (_SOURCE.value, _TARGET.value)]
        write_text_pairs(folder, DataConfig(train_source=paths[0], train_target=paths[1]), model.vocab_size)
        return folder, f"{_SOURCE.value} and {_TARGET.value}"
    write_text_pairs(folder, DataConfig(dataset="builtin", builtin_pairs=29_000), min(model.vocab_size, 800))
    return folder, "the built-in corpus, which stands in for Multi30k: give --source and --target"


def with_interpreter(contestant: Contestant) -> Contestant:
    """Returns a contestant with the interpreter that --python names for it. Raises `ValueError` for what is none."""
    for entry in _PYTHON.value:
        beginning, equals, path = entry.partition("=")
        path = pathlib.Path(path).expanduser().absolute()
        names_a_peer = beginning and any(peer.name.startswith(beginning) for peer in PEERS)
        if not (names_a_peer and equals and path.is_file()):
            raise ValueError(
                f"Expected --python=NAME=PATH, a peer and the path of its Python interpreter. Received: {entry}."
            )
        if contestant.name.startswith(beginning):
            return dataclasses.replace(contestant, python=str(path))
    return contestant


def chosen_peers() -> list[Contestant]:
    """Returns the peers that --contestants names. Raises `ValueError` for the beginning of no peer's name."""
    for beginning in _CONTESTANTS.value:
        if not any(peer.name.startswith(beginning) for peer in PEERS):
            names = "; ".join(peer.name for peer in PEERS)
            raise ValueError(f"Expected --contestants among {names}; or beginnings of these. Received: {beginning}.")
    return [with_interpreter(peer) for peer in PEERS if peer.name.startswith(tuple(_CONTESTANTS.value) or "")]


def compare(folder: pathlib.Path) -> dict:
    """Makes the whole comparison with files in a folder. Returns what --json prints: `results.summary`, the machine and
    the settings.
    """
    (model, train), peers, load = configs(), chosen_peers(), os.getloadavg()[0]
    installed = {each.name: versions(each.python) for each in (OURS, *CEILINGS, *peers)}
    failed = {}
    for peer in peers:
        if missing := [package for package in peer.packages if package not in installed[peer.name]]:
            failed[peer.name] = f"{' and '.join(missing)} not installed: {peer.install}"
    peers = [peer for peer in peers if peer.name not in failed]
    ceilings = [ceiling for ceiling in CEILINGS if set(ceiling.packages) <= installed[ceiling.name].keys()]
    with program.without_noise():
        from benchmarks.train_peers import batches, comparison

        shards_folder, corpus = write_pairs(folder / "shards", model)
    updates = _UPDATES.value or {"base": 4, "big": 2, "multi30k": 8}[_CONFIG.value]
    written = batches.write_batches(folder / "batches.npz", shards_folder, train, updates)
    task = {**written, "model": vars(model), "train": vars(train), "weights": "", "threads": cpu()["cores"]}
    if load > 0.5:
        comparison.progress(f"The machine is busy (load average {load:.1f}): ratios of speeds are not valid.")
    tokens, operations = (sum(numbers) for numbers in batches.count(task))
    comparison.progress(
        f"{corpus}: {updates} updates, {tokens:,} target tokens, {sum(task['micro_batches'])} micro-batches."
    )
    differences = {}
    if peers and _CHECK_UPDATES.value:
        differences, differ = comparison.check(peers, task, shards_folder, _CHECK_UPDATES.value, folder)
        failed |= differ
        peers = [peer for peer in peers if peer.name not in failed]
    results = summary(comparison.measure(peers, ceilings, task, _ROUNDS.value, folder), tokens, 3 * operations)
    for name in differences.keys() & results["peers"].keys():
        results["peers"][name]["difference"] = differences[name]
    results["peers"] |= {name: {"error": error} for name, error in failed.items()}
    settings = {
        "config": _CONFIG.value,
        "corpus": corpus,
        "rounds": _ROUNDS.value,
        "updates_per_round": updates,
        "target_tokens_per_round": tokens,
        "model": vars(model),
        "dtype": train.dtype,
        "batch_tokens": train.batch_tokens,
        "buckets_per_update": task["buckets_per_update"],
    }
    packages = {package: version for found in installed.values() for package, version in found.items()}
    return {**results, "machine": {**cpu(), "load_before": load}, "versions": packages, "settings": settings}


def benchmark() -> None:
    with tempfile.TemporaryDirectory() as name:
        results = compare(pathlib.Path(name))
    if _JSON.value:
        print(json.dumps(results))
        return
    settings, machine = results["settings"], results["machine"]
    print(f"{machine['cpu']}, {machine['cores']} cores; matrix products {results['ceiling'] / 1e9:,.0f} GFLOP/s.")
    print(", ".join(f"{package} {version}" for package, version in results["versions"].items()))
    print(
        f"{settings['config']}, {settings['dtype']}, V = {settings['model']['vocab_size']:,}, {settings['corpus']}; "
        f"{settings['rounds']} rounds of {settings['updates_per_round']} updates with "
        f"{settings['target_tokens_per_round']:,} real target tokens.\n"
    )
    print(table(results))


if __name__ == "__main__":
    program.run(benchmark)
