"""Batches (section 5.1): rows × padded length ≤ budget in every batch; every pair exactly once per epoch, in an order
that (seed, epoch) decides.
"""

import collections
import itertools
import shutil

import numpy as np
import pytest
import tensorflow as tf
import toy

from t2t_keras.config import EOS, PAD, TrainConfig
from t2t_keras.data import batching, shards
from t2t_keras.training import devices

PAIRS, LONGEST, BUDGET = 230, 24, 240
cut_in_graph = tf.function(lambda source, target, batch_tokens: batching.cut(tf.maximum(source, target), batch_tokens))


def lengths_like(
    count: int, *, median: float, spread: float, difference: float, longest: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Log-normal lengths of both sides of a corpus.

    Args:
        spread: standard deviation of log length that both sides share.
        difference: standard deviation of the log of one side's length over the other's.
    """
    draw = np.random.default_rng(seed)
    both = draw.normal(np.log(median), spread, count)
    sides = (np.exp(both + draw.normal(0, difference / np.sqrt(2), count)) for _ in range(2))
    return tuple(np.clip(np.rint(side), 3, longest).astype(np.int32) for side in sides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three windows of two or three shards. Pair n is n + 4 in base 50 as the first two ids of both sides, then its
    length.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "PAIRS_PER_SHARD", 30)
        patch.setattr(shards, "PAIRS_PER_RECORD", 8)
        draw = np.random.default_rng(5)
        pairs = []
        for number in range(PAIRS):
            name = [number // 50 + 4, number % 50 + 4]
            pairs.append(tuple(np.array([*name, *[60] * draw.integers(0, LONGEST - 2), EOS]) for _ in shards.SIDES))
        path = tmp_path_factory.mktemp("shards")
        info = shards.write(path, pairs, count=PAIRS, vocab_size=61, seed=1)
        assert len(info["shards"]) == 8
        np.save(path / "lengths.npy", [[len(side) for side in pair] for pair in pairs])
    return path


@pytest.fixture
def batches(folder, monkeypatch):
    """Batches of the folder, as numpy."""
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 90)

    def listed(*, batch_tokens=BUDGET, seed=1, epochs: int | None = 1, start=batching.START, take=-1) -> list[dict]:
        dataset = batching.batches(folder, batch_tokens=batch_tokens, seed=seed, start=start, epochs=epochs)
        return list(dataset.take(take).as_numpy_iterator())

    return listed


def names(batch: dict) -> list[int]:
    """Which pairs are the rows of a batch; both sides must agree."""
    source, target = ((batch[side][:, 0] - 4) * 50 + batch[side][:, 1] - 4 for side in shards.SIDES)
    np.testing.assert_array_equal(source, target)
    return source.tolist()


def composition(listed: list[dict]) -> list[list[int]]:
    return [names(batch) for batch in listed]


def real(ids: np.ndarray) -> np.ndarray:
    return (ids != PAD).sum(axis=-1)


# Batches.


@pytest.mark.parametrize("budget", [LONGEST, 100, BUDGET, 10**6])
def test_rows_times_padded_length_is_within_the_budget_on_both_sides(batches, budget):
    for batch in batches(batch_tokens=budget):
        assert all(batch[side].size <= budget for side in shards.SIDES)


def test_every_pair_comes_exactly_once_in_every_epoch(batches):
    listed = batches(epochs=3)
    ends = [index + 1 for index, batch in enumerate(listed) if batch["position"].tolist() in ([3, 0], [6, 0], [9, 0])]
    assert ends[-1] == len(listed)
    for begin, end in itertools.pairwise([0, *ends]):
        assert sorted(itertools.chain(*composition(listed[begin:end]))) == list(range(PAIRS))


@pytest.mark.parametrize("budget", [LONGEST, 100, 10**6])
def test_the_batches_of_an_epoch_are_counted_without_making_them(batches, folder, budget):
    assert batching.batches_per_epoch(folder, budget, seed=2) == len(batches(batch_tokens=budget, seed=2))


def test_rows_are_the_sentences_padded_to_the_longest_of_them(batches, folder):
    lengths = np.load(folder / "lengths.npy")
    for batch in batches():
        for index, side in enumerate(shards.SIDES):
            ids = batch[side]
            expected = lengths[names(batch), index]
            assert ids.dtype == np.int32
            assert ids.shape[1] == expected.max()
            inside = np.arange(ids.shape[1]) < expected[:, None]
            np.testing.assert_array_equal(ids != PAD, inside)
            np.testing.assert_array_equal(ids[np.arange(len(ids)), expected - 1], EOS)
            assert (ids[:, 2:][inside[:, 2:]] >= EOS).all()


@pytest.mark.medium
def test_the_order_is_a_function_of_the_seed_and_the_epoch(batches):
    listed = batches(epochs=2)
    assert composition(listed) == composition(batches(epochs=2))
    both = composition(listed)
    first = both[: len(batches(epochs=1))]
    second = both[len(first) :]
    other = composition(batches(seed=2))
    for one, two in itertools.combinations((first, second, other), 2):
        assert [names[0] for names in one] != [names[0] for names in two]
        # Not the order alone: rows come together that did not.
        together, again = ({frozenset(names) for names in epoch} for epoch in (one, two))
        assert not together & again


def test_a_seed_gives_the_order_that_it_gave_before(batches):
    """So that a run that is resumed with a newer version goes on where it was."""
    firsts = [
        *(204, 202, 135, 147, 102, 44, 49, 29, 74, 219, 211, 24, 164, 1, 3, 81, 194, 28, 54, 63, 216, 75, 111, 120),
        *(175, 14, 164, 32, 128, 172, 20, 22, 67, 174, 147, 118, 173, 121, 17, 66, 9, 194, 29, 3, 149, 83, 115),
    ]
    assert [rows[0] for rows in composition(batches(epochs=2))] == firsts


def test_batches_of_a_window_are_shuffled(batches):
    """Some of twelve windows begin with short pairs and some with long ones, though each was sorted."""
    listed = batches(epochs=4)
    firsts = [after["source"].shape[1] for before, after in itertools.pairwise(listed) if before["position"][1] == 0]
    assert len(firsts) == 11
    assert max(firsts) > LONGEST * 2 / 3 > LONGEST / 3 > min(firsts)


def test_from_any_position_exactly_the_rest_comes(batches, monkeypatch):
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 120)
    whole = batches(batch_tokens=1500, epochs=2)
    assert {batch["position"][0] for batch in whole} == {0, 1, 2, 3, 4}  # Two windows an epoch …
    assert {batch["position"][1] for batch in whole} > {0, 1}  # … of several batches.
    for done, batch in enumerate(whole, 1):
        rest = batches(batch_tokens=1500, epochs=2, start=batching.Position(*batch["position"].tolist()))
        toy.assert_same_batches(rest, whole[done:])


def test_without_an_end_epochs_follow_one_another(batches):
    two = batches(epochs=2)
    endless = batches(epochs=None, take=len(two) + 5)
    assert composition(endless[: len(two)]) == composition(two)
    assert len(endless) == len(two) + 5


@pytest.mark.parametrize(("pairs", "windows"), [(10**6, 1), (1, 8)], ids=["as large as the corpus", "one shard"])
def test_a_window_of_any_size_gives_every_pair_too(batches, monkeypatch, pairs, windows):
    monkeypatch.setattr(batching, "WINDOW_PAIRS", pairs)
    listed = batches()
    assert sorted(itertools.chain(*composition(listed))) == list(range(PAIRS))
    assert listed[-1]["position"].tolist() == [windows, 0]


def test_windows_of_documents_hold_fewer_pairs(folder, monkeypatch):
    """And those of sentences as many as before: up to 64 sub-words a pair."""
    info = {"shards": [""] * 512, "pairs": 2**23, "source_tokens": 0, "target_tokens": 0, "columns": shards.SIDES}
    sizes = (60, 256, 512, 2 * 8192)
    assert [batching.windows_per_epoch({**info, "source_tokens": 2**23 * size}) for size in sizes] == [16, 64, 128, 512]


def test_offsets_in_a_window_of_more_than_two_thousand_million_tokens_are_right(folder, monkeypatch):
    """Story: they were int32. Only the lengths are here."""
    lengths, none = tf.fill([40_000], 65_535), tf.constant([], tf.int32)
    read = {f"{side}_{kind}": value for side in shards.SIDES for kind, value in (("lengths", lengths), ("ids", none))}
    monkeypatch.setattr(shards, "read", lambda *args: {**read, "damaged": tf.constant(0)})
    window = batching._read_window(folder, shards.read_info(folder), tf.constant(0, tf.int64), 2**17, 1, "stop")
    np.testing.assert_array_equal(window["source_starts"], 65_535 * np.arange(40_000))


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_a_device_is_taken_to_get_as_many_micro_batches_as_an_update_is_split_into(number):
    """Story: of 3 buckets on 2 devices, `split` made 3 micro-batches for each, and the threads were those of one."""
    for replicas in (1, 2, 3, 4):
        ids = tf.ones([number, 4, 10], tf.int32)
        split = batching.split({"source": ids, "target": ids}, buckets=number, replicas=replicas, micro_batch_tokens=40)
        config = TrainConfig(batch_tokens=40 * number, micro_batch_tokens=40, buckets_per_update=number)
        assert devices.of_update(config, replicas) == split["source"].shape[1], replicas


def test_pairs_of_equal_lengths_meet_others_in_every_epoch(tmp_path):
    """Ties of the sort are random: with equal lengths, a row's company is a draw from all."""
    pairs = [(np.array([4 + index, EOS]), np.array([EOS])) for index in range(200)]
    shards.write(tmp_path, pairs, count=200, vocab_size=300, seed=1)
    dataset = batching.batches(tmp_path, batch_tokens=20, seed=1, epochs=2)
    company = [frozenset((batch["source"][:, 0] - 4).tolist()) for batch in dataset.as_numpy_iterator()]
    assert [len(rows) for rows in company] == [10] * 40
    assert max(len(one & two) for one in company[:20] for two in company[20:]) < 6
    first = sorted(company[0])
    assert first != list(range(first[0], first[0] + 10))


def test_too_long_a_sentence_is_refused_before_training_begins(folder):
    longest = int(np.load(folder / "lengths.npy").max())
    batching.batches(folder, batch_tokens=longest, seed=1)
    with pytest.raises(ValueError, match=rf"of at least {longest}, .* Received: {longest - 1}\..*`max_length`"):
        batching.batches(folder, batch_tokens=longest - 1, seed=1)


def test_no_pairs_are_refused(tmp_path):
    shards.write(tmp_path, [], count=0, vocab_size=10, seed=1)
    with pytest.raises(ValueError, match="none"):
        batching.batches(tmp_path, batch_tokens=100, seed=1)


# Damage.


@pytest.fixture
def damaged(tmp_path, folder, monkeypatch):
    """A copy of the folder, to be damaged: (windows of one shard → flips a byte in records of shards, returns the pairs
    lost).
    """
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 90)
    path = tmp_path / "train"
    shutil.copytree(folder, path)
    info = shards.read_info(path)
    ends = np.cumsum(shards.read_records(path)[:, shards.COLUMNS.index("pairs")])
    names_on_disk = []
    for shard in range(len(info["shards"])):
        columns = shards.read(path, [shard])
        starts = np.cumsum(columns["source_lengths"]) - columns["source_lengths"]
        ids = columns["source_ids"].numpy()
        names_on_disk += ((ids[starts] - 4) * 50 + ids[starts + 1] - 4).tolist()

    def damage(which) -> set[int]:
        lost = set()
        for index, (shard, offset, length, pairs, _) in enumerate(shards.read_records(path).tolist()):
            if which(shard, index):
                file = path / info["shards"][shard]
                content = bytearray(file.read_bytes())
                content[offset + length // 3] ^= 64
                file.write_bytes(content)
                lost.update(names_on_disk[ends[index] - pairs : ends[index]])
        return lost

    return path, damage


def skipping(path, *, epochs: int | None = 1, start=batching.START) -> list[dict]:
    dataset = batching.batches(path, batch_tokens=BUDGET, seed=1, epochs=epochs, start=start, damaged_records="skip")
    return list(dataset.as_numpy_iterator())


def test_damaged_records_stop_a_run_in_a_sentence_unless_they_are_skipped(damaged):
    path, damage = damaged
    damage(lambda shard, index: index == 5)
    dataset = batching.batches(path, batch_tokens=BUDGET, seed=1, epochs=1)
    with pytest.raises(
        ValueError, match=r"^Expected intact records. .* 1 damaged, .* byte \d+ of .*tfrecord\. .*=skip`\.$"
    ):
        with shards.plain_errors():
            list(dataset)


def test_a_strategy_s_iterator_stops_in_the_same_sentence(damaged):
    path, damage = damaged
    damage(lambda shard, index: index == 5)
    dataset = batching.batches(path, batch_tokens=BUDGET, seed=1, epochs=1)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    shared = (
        batching.grouped(dataset, 2)
        .map(lambda update: batching.split(update, buckets=2, replicas=2, micro_batch_tokens=50))
        .unbatch()
    )
    iterator = iter(strategy.distribute_datasets_from_function(lambda context: shared.prefetch(8)))
    with pytest.raises(
        ValueError, match=r"^Expected intact records. .* 1 damaged, .* byte \d+ of .*tfrecord\. .*=skip`\.$"
    ):
        with shards.plain_errors():
            while True:
                next(iterator)


def test_all_but_the_pairs_of_damaged_records_come_exactly_once_and_damage_is_counted_once_a_window(damaged, capfd):
    path, damage = damaged
    lost = damage(lambda shard, index: index % 5 == 2)
    number = sum(index % 5 == 2 for index in range(len(shards.read_records(path))))
    assert 0 < len(lost) < PAIRS / 3
    listed = skipping(path, epochs=2)
    assert collections.Counter(itertools.chain(*composition(listed))) == dict.fromkeys(set(range(PAIRS)) - lost, 2)
    assert sum(batch["damaged"] for batch in listed) == 2 * number
    firsts = [True, *(batch["position"][1] == 0 for batch in listed[:-1])]
    assert not [batch for batch, first in zip(listed, firsts, strict=True) if batch["damaged"] and not first]
    assert listed[0]["damaged"].dtype == np.int32
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 2 * number == 2 * len(set(told))
    assert sum(int(line.split(": ")[-1].split()[0]) for line in told) == 2 * len(lost)


def test_without_damage_none_is_counted_and_skipping_changes_nothing(batches, folder):
    found = batches()
    assert not any(batch["damaged"] for batch in found)
    toy.assert_same_batches(skipping(folder), found)


@pytest.mark.medium
def test_with_damage_too_the_order_is_decided_and_from_any_position_exactly_the_rest_comes(damaged):
    """The counts as well: those of a window that was begun before are not counted again."""
    path, damage = damaged
    damage(lambda shard, index: index % 5 == 2)
    whole = skipping(path, epochs=2)
    for done in range(1, len(whole), 11):
        rest = skipping(path, epochs=2, start=batching.Position(*whole[done - 1]["position"].tolist()))
        toy.assert_same_batches(rest, whole[done:])


@pytest.mark.medium
def test_a_window_of_damaged_records_alone_gives_no_batch_and_the_next_one_counts_them(damaged, monkeypatch):
    """Windows of one shard, of which six of eight hold nothing."""
    monkeypatch.setattr(batching, "WINDOW_PAIRS", 1)
    path, damage = damaged
    lost = damage(lambda shard, index: shard not in (1, 6))
    number = int((~np.isin(shards.read_records(path)[:, 0], (1, 6))).sum())
    listed = skipping(path, epochs=3)
    assert collections.Counter(itertools.chain(*composition(listed))) == dict.fromkeys(set(range(PAIRS)) - lost, 3)
    counts = [int(batch["damaged"]) for batch in listed]
    # Those at the very end are followed by no batch that could count them.
    assert 2 * number < sum(counts) <= 3 * number
    for done in range(1, len(listed), 8):
        rest = skipping(path, epochs=3, start=batching.Position(*listed[done - 1]["position"].tolist()))
        assert [int(batch["damaged"]) for batch in rest] == counts[done:]


def test_where_every_record_is_damaged_a_run_ends_with_an_error(damaged):
    path, damage = damaged
    assert damage(lambda shard, index: True) == set(range(PAIRS))
    for options in ({"epochs": None}, {"epochs": 1}, {"epochs": None, "start": batching.Position(1, 0)}):
        with pytest.raises(ValueError, match="^Expected pairs in .*only damaged records.*"), shards.plain_errors():
            skipping(path, **options)


@pytest.mark.parametrize("left", [0, 1, 2], ids="{} records left".format)
def test_a_shard_that_lost_its_last_records_is_noticed(tmp_path, monkeypatch, caplog, left):
    """TensorFlow takes the end of a file between two records, or less than 12 bytes after, for the end of the data."""
    monkeypatch.setattr(shards, "PAIRS_PER_RECORD", 10)
    monkeypatch.setattr(shards, "PAIRS_PER_SHARD", 50)
    info = shards.write(tmp_path, [(np.array([4, EOS]), np.array([5, EOS]))] * 100, count=100, vocab_size=10, seed=1)
    path, records = tmp_path / info["shards"][0], shards.read_records(tmp_path)
    whole = path.read_bytes()
    record = 8 + 4 + int.from_bytes(whole[:8], "little") + 4  # Its length, checksum, content, checksum.
    path.write_bytes(whole[: left * record])
    with pytest.raises(ValueError, match="bytes. Received"):
        batching.batches(tmp_path, batch_tokens=100, seed=1, epochs=1)
    lost = records[records[:, 0] == 0][left:]
    dataset = batching.batches(tmp_path, batch_tokens=100, seed=1, epochs=1, damaged_records="skip")
    listed = list(dataset.as_numpy_iterator())
    assert sum(batch["damaged"] for batch in listed) == len(lost)
    assert sum(len(batch["source"]) for batch in listed) == 100 - lost[:, shards.COLUMNS.index("pairs")].sum()
    assert f"Expected {path} to have" in caplog.text


# The graph.


def test_the_pipeline_holds_no_python(folder):
    """So it can be sent to a worker of the tf.data service, and no interpreter lock slows it."""
    dataset = batching.batches(folder, batch_tokens=BUDGET, seed=1, epochs=1)
    graph = tf.compat.v1.GraphDef.FromString(tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor).numpy())
    nodes = itertools.chain(graph.node, *(function.node_def for function in graph.library.function))
    ops = {node.op for node in nodes}
    assert {"ReadFile", "FlatMapDataset", "StatelessRandomUniformFullIntV2"} <= ops  # The graph is whole.
    assert not {op for op in ops if "PyFunc" in op or "Generator" in op or "Stateful" in op}


# The order of a window, and where it is cut.


def oracle(source: list[int], target: list[int], budget: int) -> list[int]:
    """Greedy cuts, a row at a time."""
    cuts, first = [0], 0
    for row in range(len(source)):
        if (row + 1 - first) * max(source[first : row + 1] + target[first : row + 1]) > budget:
            cuts.append(row)
            first = row
    return [*cuts, len(source)]


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_cuts_are_those_of_the_greedy_oracle(seed, sort):
    draw = np.random.default_rng(seed)
    source, target = draw.integers(1, 40, [2, int(draw.integers(1, 300))]).astype(np.int32)
    if sort:
        order = np.argsort(batching.sort_key(tf.constant(source), tf.constant(target)), kind="stable")
        source, target = source[order], target[order]
    for budget in (max(source.max(), target.max()), 100, 1000):
        expected = oracle(source.tolist(), target.tolist(), budget)
        assert cut_in_graph(source, target, tf.constant(budget, tf.int32)).numpy().tolist() == expected


def test_one_pair_is_one_batch():
    assert batching.cut(tf.constant([7]), 7).numpy().tolist() == [0, 1]


def test_the_sort_lays_strips_of_source_length_up_and_down_by_target_length():
    """Worked by hand: strips {2, 3}, {4, 5}; target lengths rise in the first and fall in the second."""
    pairs = [(4, 1), (5, 9), (2, 9), (3, 1), (4, 5), (3, 5)]
    keys = batching.sort_key(*(tf.constant(side) for side in zip(*pairs, strict=True))).numpy()
    first, second = [(2, 9), (3, 5), (3, 1)], [(4, 1), (4, 5), (5, 9)]
    assert [pair for _, pair in sorted(zip(keys, pairs, strict=True))] in (first + second, first[::-1] + second[::-1])


def test_the_sort_keeps_strips_apart_up_to_the_longest_sentence_that_can_be_stored():
    """Lengths on disk are uint16."""
    source = tf.constant([2, 100, 1000, 2**14, 2**15 - 1, 2**15, 2**16 - 1])
    lowest, highest = (batching.sort_key(source, tf.fill([7], length)).numpy() for length in (1, 2**16 - 1))
    for strip in range(6):
        assert max(lowest[strip], highest[strip]) < min(lowest[strip + 1], highest[strip + 1])


def real_share(source: np.ndarray, target: np.ndarray, budget: int) -> float:
    """Tokens that are not padding, of both sides, over all of a window's batches."""
    order = tf.argsort(batching.sort_key(tf.constant(source), tf.constant(target)), stable=True).numpy()
    sides = [source[order], target[order]]
    cuts = cut_in_graph(*sides, tf.constant(budget)).numpy()
    padded = sum((np.diff(cuts) * np.maximum.reduceat(side, cuts[:-1])).sum() for side in sides)
    return (source.sum() + target.sum()) / padded


@pytest.mark.parametrize("buckets", [1, 2])
def test_short_sentences_are_92_percent_real_tokens(buckets):
    """29,000 pairs as long as Multi30k's: about 15 sub-words, sides correlated by 0.84. Multi30k itself gives 93%."""
    source, target = lengths_like(29_000, median=15, spread=0.3, difference=0.18, longest=60, seed=1)
    assert 0.8 < np.corrcoef(source, target)[0, 1] < 0.9
    assert real_share(source, target, 8192 // buckets) >= 0.92


@pytest.mark.parametrize("buckets", [1, TrainConfig().buckets_per_update])
def test_a_million_news_sentences_are_97_percent_real_tokens(buckets):
    """As long as newstest's: about 29 sub-words, sides correlated by 0.94, at the default budget."""
    source, target = lengths_like(1_000_000, median=25, spread=0.55, difference=0.18, longest=256, seed=1)
    assert 0.9 < np.corrcoef(source, target)[0, 1] < 0.96
    assert real_share(source, target, TrainConfig().batch_tokens // buckets) >= 0.97


# Sharing out.


def split_cases():
    draw = np.random.default_rng(3)
    yield from [([(1, 1, 1)], 1, 1), ([(1, 5, 9)], 4, 8), ([(3, 5, 9)], 4, 100), ([(8, 5, 9)], 2, 36)]
    yield from [([(9, 5, 9)], 2, 36), ([(7, 30, 2)], 3, 10), ([(64, 8, 8)], 1, 64)]
    yield [(40, 3, 3), (1, 60, 50), (12, 9, 11)], 2, 60
    for _ in range(40):
        buckets = [tuple(int(draw.integers(1, high)) for high in (70, 20, 20)) for _ in range(draw.integers(1, 7))]
        yield buckets, int(draw.integers(1, 6)), int(draw.integers(max(max(bucket[1:]) for bucket in buckets), 400))


def update_of(buckets: list[tuple[int, int, int]], seed: int = 0) -> dict:
    """An update whose buckets have (rows, S, T), as `grouped` makes it."""
    draw = np.random.default_rng(seed)
    batches = [
        {side: draw.integers(3, 99, [rows, s if side == "source" else t]) for side in shards.SIDES}
        for rows, s, t in buckets
    ]
    signature = {side: tf.TensorSpec([None, None], tf.int32) for side in shards.SIDES}
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
    [update] = batching.grouped(dataset, len(buckets))
    return update


@pytest.mark.parametrize(("buckets", "replicas", "micro_batch_tokens"), split_cases())
def test_an_update_is_shared_out_in_equally_many_micro_batches_that_fit(buckets, replicas, micro_batch_tokens):
    """All rows are kept, once and in order; each micro-batch has rows of one bucket only; all buckets have equally
    many.
    """
    update = update_of(buckets)
    shared = batching.split(update, buckets=len(buckets), replicas=replicas, micro_batch_tokens=micro_batch_tokens)
    [(first, number, _)] = {shared[side].shape[:3] for side in shards.SIDES}
    assert first == replicas and replicas * number % len(buckets) == 0
    micro_batches = replicas * number // len(buckets)  # Of one bucket.
    source, target = (
        shared[side].numpy().reshape(len(buckets), micro_batches, *shared[side].shape[2:]) for side in shards.SIDES
    )
    needed = [-(-rows // max(1, micro_batch_tokens // max(s, t))) for rows, s, t in buckets]
    assert max(needed) <= micro_batches < max(needed) + replicas
    for bucket, (rows, s, t) in enumerate(buckets):
        share = -(-rows // micro_batches)
        assert share * max(s, t) <= max(micro_batch_tokens, max(s, t))
        for ids, side, length in ((source[bucket], "source", s), (target[bucket], "target", t)):
            expected = update[side][bucket]
            assert (ids[:, share:] == PAD).all() and (ids[:, :, length:] == PAD).all()
            flat = ids[:, :share, :length].reshape(-1, length)
            np.testing.assert_array_equal(flat[:rows], expected[:rows, :length])
            assert (flat[rows:] == PAD).all()


def test_if_there_are_as_many_buckets_as_replicas_each_replica_gets_a_whole_one():
    update = update_of([(4, 9, 8), (12, 3, 3), (2, 20, 17)])
    shared = batching.split(update, buckets=3, replicas=3, micro_batch_tokens=40)
    assert shared["source"].shape[:3] == (3, 1, 12)
    assert [int(real(replica).sum()) for replica in shared["source"].numpy()] == [4 * 9, 12 * 3, 2 * 20]


def test_fewer_rows_than_replicas_leave_replicas_only_padding():
    shared = batching.split(update_of([(2, 3, 4)]), buckets=1, replicas=5, micro_batch_tokens=100)
    assert [int(real(replica).sum()) for replica in shared["source"].numpy()] == [3, 3, 0, 0, 0]


def test_missing_buckets_leave_replicas_only_padding():
    shared = batching.split(update_of([(2, 3, 4)]), buckets=4, replicas=2, micro_batch_tokens=100)
    assert shared["source"].shape == [2, 2, 2, 3]
    assert [int(real(replica).sum()) for replica in shared["source"].numpy()] == [6, 0]


def test_a_sentence_longer_than_a_device_takes_is_a_micro_batch_of_its_own():
    shared = batching.split(update_of([(3, 50, 4)]), buckets=1, replicas=1, micro_batch_tokens=40)
    assert shared["source"].shape == [1, 3, 1, 50]


def test_other_entries_are_repeated_for_every_replica():
    update = {**update_of([(3, 2, 2)]), "position": tf.constant([4, 2], tf.int64)}
    shared = batching.split(update, buckets=1, replicas=3, micro_batch_tokens=10)
    np.testing.assert_array_equal(shared["position"], [[4, 2]] * 3)


@pytest.mark.parametrize("buckets", [1, 3])
def test_split_works_inside_the_pipeline(folder, buckets):
    """Rows of an epoch survive sharing out in the graph, where shapes are not known."""
    dataset = batching.grouped(batching.batches(folder, batch_tokens=BUDGET, seed=1, epochs=1), buckets)
    counted = collections.Counter()
    shared = dataset.map(lambda update: batching.split(update, buckets=buckets, replicas=2, micro_batch_tokens=50))
    for update in shared.as_numpy_iterator():
        rows = {side: update[side].reshape(-1, update[side].shape[-1]) for side in shards.SIDES}
        counted.update(names({side: ids[real(ids) > 0] for side, ids in rows.items()}))
    assert counted == dict.fromkeys(range(PAIRS), 1)


# Buckets of an update.


def test_the_buckets_of_an_update_are_the_next_batches_and_its_position_follows_the_last_one(batches, folder):
    """Their lengths differ, and its position is where the next update begins."""
    alone = batches(epochs=2)
    dataset = batching.batches(folder, batch_tokens=BUDGET, seed=1, epochs=2)
    updates = list(batching.grouped(dataset, 4).as_numpy_iterator())
    assert len(updates) == -(-len(alone) // 4)
    for number, update in enumerate(updates):
        expected = alone[4 * number : 4 * number + 4]
        assert update["position"].tolist() == expected[-1]["position"].tolist()
        for side in shards.SIDES:
            for bucket, batch in zip(update[side], expected, strict=True):
                rows, length = batch[side].shape
                np.testing.assert_array_equal(bucket[:rows, :length], batch[side])
                assert (bucket != PAD).sum() == (batch[side] != PAD).sum()
    lengths = [batch["source"].shape[1] for batch in alone[:20]]
    assert np.mean(np.ptp(np.reshape(lengths, [5, 4]), axis=1)) > LONGEST / 4


def test_the_damage_of_an_update_is_the_sum_over_its_buckets():
    batches = tf.data.Dataset.range(5).map(
        lambda n: {"source": [[n]], "target": [[n]], "position": [0, n], "damaged": n}
    )
    updates = list(batching.grouped(batches, 3).as_numpy_iterator())
    found = [(update["position"].tolist(), int(update["damaged"])) for update in updates]
    assert found == [([0, 2], 0 + 1 + 2), ([0, 4], 3 + 4)]


@pytest.mark.parametrize(("wanted", "expected"), [(1, 1), (8, 8), (40, 10)])
def test_an_update_has_as_many_buckets_as_wanted_if_the_longest_sentence_fits(wanted, expected):
    info = {"source_longest": 90, "target_longest": 100, "columns": shards.SIDES}
    assert batching.buckets(info, 1000, wanted) == expected
    assert batching.buckets(info, 50, wanted) == 1  # Reading tells that it does not fit.


def test_the_worked_example_of_its_docstring_is_what_happens(tmp_path):
    lengths = [(3, 4), (9, 8), (2, 2), (8, 9), (3, 3), (2, 3)]
    pairs = [tuple(np.array([5] * (length - 1) + [EOS]) for length in pair) for pair in lengths]
    shards.write(tmp_path, pairs, count=6, vocab_size=20, seed=0)
    found = list(batching.batches(tmp_path, batch_tokens=18, seed=1, epochs=1).as_numpy_iterator())
    shapes = {(batch["source"].shape, batch["target"].shape) for batch in found}
    assert shapes == {((4, 3), (4, 4)), ((2, 9), (2, 9))} and len(found) == 2
    rows = itertools.chain(*(zip(batch["source"], batch["target"], strict=True) for batch in found))
    assert {tuple(map(np.count_nonzero, pair)) for pair in rows} == set(lengths)
