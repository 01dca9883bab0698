"""Compares the losses of the contestants, then measures them in turns."""

import contextlib
import dataclasses
import pathlib
import time

import keras
import numpy as np

from benchmarks.passes.process import progress
from benchmarks.train_peers.batches import SEED, write_batches
from benchmarks.train_peers.contestants import OURS, Contestant, ContestantError, Process
from benchmarks.train_peers.ours import named_variables
from t2t_keras.config import ModelConfig, TrainConfig
from t2t_keras.data import shards
from t2t_keras.model.transformer import Transformer

TOLERANCE = 1e-3  # Largest relative difference of a loss from ours.
CHECK_LAYERS, CHECK_BATCHES = 2, 2  # PyTorch may compile each shape for a minute.


def largest_difference(losses: list[float], ours: list[float]) -> float:
    """Returns the largest relative difference of two lists of losses; infinite if one is not finite."""
    differences = [abs(loss - own) / abs(own) for loss, own in zip(losses, ours, strict=True)]
    return float("inf") if any(difference != difference for difference in differences) else max(differences)


def check(
    peers: list[Contestant], task: dict, shards_folder: pathlib.Path, number: int, folder: pathlib.Path
) -> tuple[dict[str, float], dict[str, str]]:
    """Compares the first losses of a shallower model in float32 without dropout, from the same weights, on a number of
    small updates of the pairs in `shards_folder`.

    Returns the largest relative difference of each peer from t2t_keras, and why a peer cannot be compared: it failed,
    or differs by more than `TOLERANCE`.
    """
    model, train = ModelConfig(**task["model"]), TrainConfig(**task["train"])
    layers = {name: min(CHECK_LAYERS, getattr(model, name)) for name in ("encoder_layers", "decoder_layers")}
    model = dataclasses.replace(model, **layers, dropout=0.0)
    longest = max(shards.counted(shards.read_info(shards_folder)))
    tokens = task["buckets_per_update"] * max(longest, 256)
    train = dataclasses.replace(
        train, dtype="float32", batch_tokens=tokens, buckets_per_update=task["buckets_per_update"]
    )
    keras.utils.set_random_seed(SEED)
    weights = folder / "weights.npz"
    np.savez(weights, **{name: variable.numpy() for name, variable in named_variables(Transformer(model)).items()})
    batches = write_batches(folder / "check.npz", shards_folder, train, CHECK_BATCHES)
    task = {**task, **batches, "model": vars(model), "train": vars(train), "weights": str(weights)}
    updates = [index % CHECK_BATCHES for index in range(number)]

    def losses(contestant: Contestant) -> list[float]:
        with contextlib.closing(Process(contestant, task, folder)) as process:
            return process.run(updates)["losses"]

    progress(f"First {len(updates)} losses of {OURS.name} …")
    ours, differences, failed = losses(OURS), {}, {}
    for peer in peers:
        progress(f"First {len(updates)} losses of {peer.name} …")
        try:
            difference = differences[peer.name] = largest_difference(losses(peer), ours)
            if difference > TOLERANCE:
                failed[peer.name] = (
                    f"its first losses differ from ours by up to {difference:.1g}, so it computes something else"
                )
        except ContestantError as error:
            failed[peer.name] = str(error)
    return differences, failed


def started(contestant: Contestant, task: dict, folder: pathlib.Path) -> tuple[Process, float]:
    """Starts a contestant and makes all updates twice: PyTorch is slower in the first passes. Returns the process, and
    the seconds to the end of its first update.
    """
    progress(f"{contestant.name} starts …")
    process = Process(contestant, task, folder)
    try:
        process.run([0])
        seconds = time.perf_counter() - process.started
        process.run([*range(1, task["updates"]), *range(task["updates"])])
    except BaseException:
        process.close()
        raise
    return process, seconds


def measure(peers: list[Contestant], ceilings: list[Contestant], task: dict, rounds: int, folder: pathlib.Path) -> dict:
    """Measures t2t_keras in turns with each peer, or alone if there is none. Raises `ContestantError` if t2t_keras
    fails.

    Returns `ours`: {"first_step", "peak_bytes"}; and `peers`: {name: {"first_step", "peak_bytes", "rounds": [(ceiling,
    our seconds, its seconds), …]}, or {"error"}}. If no peer could be measured, the only one with rounds is t2t_keras
    itself.
    """
    updates = list(range(task["updates"]))
    with contextlib.ExitStack() as stack:
        rates = [stack.enter_context(contextlib.closing(Process(ceiling, task, folder))) for ceiling in ceilings]
        for ceiling in rates:  # They have started before the time to a first step is measured.
            ceiling.run([])
        ours, first_step = started(OURS, task, folder)
        stack.enter_context(contextlib.closing(ours))
        found = {"ours": {"first_step": first_step}, "peers": {}}

        def in_turns(process: Process) -> list[tuple]:
            measured, order = [], [ours] if process is ours else [ours, process]
            for number in range(rounds):
                ceiling = max(each.run([])["rate"] for each in rates)
                answers = {each.name: each.run(updates) for each in (order if number % 2 == 0 else order[::-1])}
                for name, answer in answers.items():
                    (found["ours"] if name == OURS.name else found["peers"][name])["peak_bytes"] = answer["peak_bytes"]
                measured.append((ceiling, answers[OURS.name]["seconds"], answers[process.name]["seconds"]))
                progress(
                    f"Round {number + 1} of {rounds}: "
                    + ", ".join(f"{name} {a['seconds']:.2f} s" for name, a in answers.items())
                )
            return measured

        for peer in peers:
            found["peers"][peer.name] = {}
            try:
                process, first_step = started(peer, task, folder)
                with contextlib.closing(process):
                    found["peers"][peer.name] |= {"first_step": first_step, "rounds": in_turns(process)}
            except ContestantError as error:
                if ours.failed:
                    raise
                progress(str(error))
                found["peers"][peer.name] = {"error": str(error)}
        if not any("rounds" in peer for peer in found["peers"].values()):
            found["peers"][OURS.name] = {"rounds": in_turns(ours)}
    return found
