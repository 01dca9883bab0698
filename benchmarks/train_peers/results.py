"""The results of `benchmarks/train.py`: medians over rounds, and the table."""

import statistics

from benchmarks.train_peers.contestants import OURS
from t2t_keras.system import markdown


def speeds(seconds: list[float], tokens: int) -> dict:
    """Returns the median, the smallest and the largest number of real target tokens per second."""
    rates = [tokens / each for each in seconds]
    return {"tokens_per_second": statistics.median(rates), "slowest": min(rates), "fastest": max(rates)}


def shares(rounds: list[tuple], operations: float) -> float:
    """Returns the median share of the ceiling: rounds are (ceiling in FLOP/s, seconds)."""
    return statistics.median(operations / seconds / ceiling for ceiling, seconds in rounds)


def summary(found: dict, tokens: int, operations: float) -> dict:
    """Returns the results of `comparison.measure`: medians over the rounds, with the real target tokens of a round and
    the operations of its matrix products, forward and backward.

    They are `ours` and, by name, `peers`: speeds, `peak_gib`, `first_step` and `ceiling_share`; peers also have
    `ratio`, our speed in multiples of theirs, and `ours_beside`, our speed in the same rounds. At the top level:
    `fastest_peer`; its `ratio` and `memory_ratio`, which is our peak memory in multiples of its; our `ceiling_share`;
    and `ceiling`, FLOP/s. They are `None` without a peer.
    """
    measured = {name: peer["rounds"] for name, peer in found["peers"].items() if "rounds" in peer}
    everything = [each for rounds in measured.values() for each in rounds]

    def result(values: dict, rounds: list[tuple]) -> dict:
        return {
            **speeds([seconds for _, seconds in rounds], tokens),
            "peak_gib": values["peak_bytes"] / 2**30,
            "first_step": values["first_step"],
            "ceiling_share": shares(rounds, operations),
        }

    ours = result(found["ours"], [(ceiling, own) for ceiling, own, _ in everything])
    peers = {name: peer for name, peer in found["peers"].items() if "rounds" not in peer}
    for name, rounds in measured.items():
        if name != OURS.name:
            peers[name] = result(found["peers"][name], [(ceiling, its) for ceiling, _, its in rounds])
            peers[name]["ratio"] = statistics.median(its / own for _, own, its in rounds)
            peers[name]["ours_beside"] = statistics.median(tokens / own for _, own, _ in rounds)
    ratios = {name: peer["ratio"] for name, peer in peers.items() if "ratio" in peer}
    fastest = min(ratios, key=ratios.get) if ratios else None
    return {
        "ours": ours,
        "peers": peers,
        "fastest_peer": fastest,
        "ratio": ratios.get(fastest),
        "memory_ratio": ours["peak_gib"] / peers[fastest]["peak_gib"] if fastest else None,
        "ceiling_share": ours["ceiling_share"],
        "ceiling": statistics.median(ceiling for ceiling, _, _ in everything),
    }


def table(results: dict) -> str:
    """Formats the results as a Markdown table, fastest first, with what was not measured below it."""
    head = ["", "target tokens/s (slowest to fastest)", "ours beside it", "ours / it", "peak memory (GiB)"]
    head += ["first step (s)", "share of ceiling", "losses differ by"]
    lines = []
    measured = {name: peer for name, peer in results["peers"].items() if "tokens_per_second" in peer}
    rows = {OURS.name: results["ours"], **measured}
    for name, row in sorted(rows.items(), key=lambda item: item[1].get("ratio", 1)):
        speed = f"{row['tokens_per_second']:,.0f} ({row['slowest']:,.0f} to {row['fastest']:,.0f})"
        forms = {"ours_beside": ",.0f", "ratio": ".2f", "difference": ".1g"}
        beside, ratio, difference = (f"{row[key]:{form}}" if key in row else "" for key, form in forms.items())
        numbers = [f"{row['peak_gib']:.2f}", f"{row['first_step']:.1f}", f"{row['ceiling_share']:.0%}", difference]
        lines.append([name, speed, beside, ratio, *numbers])
    errors = [f"Not measured: {name}: {peer['error']}" for name, peer in results["peers"].items() if "error" in peer]
    return "\n".join([markdown.table(head, lines, right=head[1:]), "", *errors]).rstrip()
