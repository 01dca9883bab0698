"""Comparisons of systems: intervals and p-values are those of resampled corpora that are scored anew; figures by length
are counted by hand; every text of a page is text.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import random
import statistics
import time

import numpy as np
import pytest
import sacrebleu
from logged import logged
from test_attention_pictures import Elements

from t2t_keras.evaluation import scores, significance
from t2t_keras.evaluation.comparison import Comparison, compare
from t2t_keras.evaluation.comparison_report import report
from t2t_keras.reporting import comparison_pictures, pages
from t2t_keras.system import machine
from t2t_keras.text.word_differences import word_differences

SAMPLES, TRIALS, SEED = 40, 50, 7
WORDS = "der die das Hund Katze Haus springt läuft über einen Zaun im Park mit zwei Kindern".split()


def corpus(number: int, *rates: float) -> list[list[str]]:
    """Sentences, and those of systems that have another word in place of some."""
    draw = random.Random(number)
    reference = [draw.choices(WORDS, k=draw.randint(5, 12)) for _ in range(number)]
    texts = [
        [[draw.choice(WORDS) if draw.random() < rate else word for word in line] for line in reference]
        for rate in (0, *rates)
    ]
    return [[" ".join(line) for line in text] for text in texts]


REFERENCE, FIRST, SECOND = corpus(24, 0.3, 0.25)
OTHER_REFERENCE = [" ".join(line.split()[::-1]) for line in REFERENCE]
METRICS = {"bleu": scores.bleu_metric(tokenize="13a"), "chrf": scores.chrf_metric()}


def pick(texts: list[list[str]], rows) -> list[list[str]]:
    return [[text[row] for row in rows] for text in texts]


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
@pytest.mark.parametrize("references", [[REFERENCE], [REFERENCE, OTHER_REFERENCE]], ids=["one reference", "two"])
def test_intervals_and_p_values_are_those_of_corpora_drawn_with_replacement(metric, references):
    """Koehn (2004): the score of each drawn corpus is computed from its text. p is the share of drawn differences that
    are as far from the difference of the systems as that is from 0, or farther.
    """
    found, signature = significance.estimates(metric, [FIRST, SECOND], references, samples=SAMPLES, seed=SEED)
    drawn = np.random.default_rng(SEED).choice(len(REFERENCE), size=(SAMPLES, len(REFERENCE)), replace=True)
    sampled = [
        [metric.corpus_score(*pick([system], rows), pick(references, rows)).score for rows in drawn]
        for system in (FIRST, SECOND)
    ]
    for system, own, estimate in zip((FIRST, SECOND), sampled, found, strict=True):
        assert estimate.score == metric.corpus_score(system, references).score
        assert estimate.mean == pytest.approx(statistics.mean(own), rel=1e-5)
        ordered = sorted(own)  # 95%: without the largest and the smallest fortieth.
        assert estimate.margin == pytest.approx((ordered[-2] - ordered[1]) / 2, rel=1e-4)
    observed = found[1].score - found[0].score
    as_large = (np.abs(np.subtract(*sampled[::-1]) - observed) >= abs(observed)).sum()
    assert 0 < as_large < SAMPLES
    assert found[1].p_value == pytest.approx((as_large + 1) / (SAMPLES + 1))
    assert found[0].p_value is found[1].randomization_p_value is None
    assert f"nrefs:{len(references)}|bs:{SAMPLES}|seed:{SEED}|" in signature


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_randomized_p_value_is_that_of_corpora_whose_sentences_are_swapped(metric):
    """Riezler and Maxwell (2005): p is the share of swapped corpora that differ as much or more."""
    found, signature = significance.estimates(metric, [FIRST, SECOND], [REFERENCE], samples=0, trials=TRIALS, seed=SEED)
    as_large = 0
    for kept in np.random.default_rng(SEED).integers(2, size=(TRIALS, len(REFERENCE)), dtype=bool):
        swapped = [
            [pair[side] for pair, side in zip(zip(FIRST, SECOND, strict=True), sides, strict=True)]
            for sides in (~kept * 1, kept * 1)
        ]
        one, two = (metric.corpus_score(system, [REFERENCE]).score for system in swapped)
        as_large += abs(one - two) >= abs(found[1].score - found[0].score)
    assert 0 < as_large < TRIALS
    assert found[1].randomization_p_value == pytest.approx((as_large + 1) / (TRIALS + 1))
    assert found[1].p_value is found[1].margin is found[0].randomization_p_value is None
    assert f"nrefs:1|ar:{TRIALS}|seed:{SEED}|" in signature


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
@pytest.mark.parametrize("differing", range(6))
def test_p_values_are_those_of_all_samples_and_swaps(metric, differing):
    """All 5⁵ samples and all swaps of five sentences are enumerated, and their texts scored; the tests draw 4,000.

    Story: with one of 300 sentences different, every swap leaves a difference as large as the observed one, and p is
    1. sacreBLEU counts larger ones only, and reports the smallest p that the trials allow.
    """
    systems = [FIRST[:5], [*SECOND[8 : 8 + differing], *FIRST[differing:5]]]
    references = [[*REFERENCE[8 : 8 + differing], *REFERENCE[differing:5]]]
    assert sum(map(str.__ne__, *systems)) == differing
    found, _ = significance.estimates(metric, systems, references, samples=4000, trials=4000)

    def difference(one: list[str], two: list[str], rows=range(5)) -> float:
        scored = [metric.corpus_score(*pick([text], rows), pick(references, rows)).score for text in (one, two)]
        return scored[1] - scored[0]

    observed = difference(*systems)
    assert found[1].score - found[0].score == pytest.approx(observed)
    scored = {rows: difference(*systems, rows) for rows in itertools.combinations_with_replacement(range(5), 5)}
    sampled = [scored[tuple(sorted(rows))] - observed for rows in itertools.product(range(5), repeat=5)]
    swapped = []
    for sides in itertools.product([0, 1], repeat=5):
        pairs = [(b, a) if side else (a, b) for side, a, b in zip(sides, *systems, strict=True)]
        swapped.append(difference(*map(list, zip(*pairs, strict=True))))
    for p, differences in ((found[1].p_value, sampled), (found[1].randomization_p_value, swapped)):
        exact = sum(abs(each) > abs(observed) - 1e-9 for each in differences) / len(differences)
        assert p == pytest.approx(exact, abs=4 * (0.25 / 4000) ** 0.5)
        assert differing > 1 or differences is sampled or p == 1


def test_both_tests_together_are_each_of_them_and_the_signature_names_both():
    systems = [FIRST, SECOND, REFERENCE]

    def estimates(systems: list, **numbers: int) -> tuple:
        return significance.estimates(METRICS["chrf"], systems, [REFERENCE], seed=SEED, **numbers)

    both, signature = estimates(systems, samples=SAMPLES, trials=TRIALS)
    sampled, tried = (estimates(systems, **own)[0] for own in ({"samples": SAMPLES}, {"samples": 0, "trials": TRIALS}))
    randomized = [each.randomization_p_value for each in tried]
    expected = [dataclasses.replace(own, randomization_p_value=p) for own, p in zip(sampled, randomized, strict=True)]
    assert both == expected
    alone, _ = estimates(systems[::2], samples=SAMPLES, trials=TRIALS)
    assert both[2] == alone[1] and both[2].p_value != both[1].p_value, "a third system is tested as the second"
    assert len({each.score for each in both}) == 3 and None not in randomized[1:]
    assert f"bs:{SAMPLES}|ar:{TRIALS}|seed:{SEED}" in signature


def test_a_system_alone_has_an_interval_and_no_p_value():
    [found], signature = significance.estimates(METRICS["bleu"], [FIRST], [REFERENCE], samples=SAMPLES, trials=TRIALS)
    assert found.margin > 0 and found.p_value is found.randomization_p_value is None and "ar:" not in signature


def test_one_sentence_has_no_interval_and_no_bootstrap_test():
    """All its samples are alike: they would show the surest difference, and an interval without a width."""
    with logged() as messages:
        found = compare({"a": ["a b c"], "b": ["a b d"]}, ["a b c"])
    assert messages == ["Leaving out confidence intervals and the bootstrap test, which need two sentences or more."]
    assert found.systems[1].bleu.p_value is found.systems[1].bleu.margin is None
    assert found.systems[1].bleu.randomization_p_value == 1 and "bs:" not in found.signature
    assert "p (bootstrap)" not in report(found) and "p (randomization)" in report(found)
    [alone], signature = significance.estimates(METRICS["bleu"], [["a"]], [["a"]], samples=SAMPLES)
    assert alone.margin is None and "bs:" not in signature and "seed" not in signature
    with logged() as messages:
        assert scores.scores(["a"], ["a"]).keys() == scores.scores(["a"], ["b"], samples=0).keys() and not messages


def test_systems_of_the_same_score_do_not_differ():
    """Story: sacreBLEU counts differences that are larger than none, finds none, and reports p = 1 / (samples + 1): the
    surest result.
    """
    for system in (FIRST, [*FIRST[1:], FIRST[0]]):
        references = [REFERENCE] if system is FIRST else [[REFERENCE[0]] * len(REFERENCE)]
        found, _ = significance.estimates(METRICS["bleu"], [FIRST, system], references, samples=SAMPLES, trials=TRIALS)
        assert (found[1].p_value, found[1].randomization_p_value) == (1.0, 1.0)


def test_the_seed_alone_decides_samples_and_swaps(monkeypatch):
    """Also in several threads at once, and whatever sacreBLEU's environment variable says.

    Story: the seed went to sacreBLEU by that variable, which threads set for each other.
    """

    def estimated(seed: int) -> tuple:
        metric = scores.chrf_metric()
        return significance.estimates(metric, [FIRST, SECOND], [REFERENCE], samples=SAMPLES, trials=TRIALS, seed=seed)

    one, again, other = map(estimated, (1, 1, 2))
    assert one == again and one[0][0].mean != other[0][0].mean and one[0][0].score == other[0][0].score
    assert one[0][1].randomization_p_value != other[0][1].randomization_p_value
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(estimated, [1, 2] * 8)) == [one, other] * 8


def test_without_samples_and_trials_there_are_scores_alone():
    found, signature = significance.estimates(METRICS["bleu"], [FIRST, SECOND], [REFERENCE], samples=0)
    expected = [sacrebleu.corpus_bleu(system, [REFERENCE]).score for system in (FIRST, SECOND)]
    assert [dataclasses.astuple(each) for each in found] == [(score, None, None, None, None) for score in expected]
    assert "seed" not in signature


@pytest.mark.parametrize("options", [{"samples": -1}, {"samples": 1, "trials": -1}, {"samples": 1, "seed": 0}], ids=str)
def test_numbers_that_cannot_be_are_refused(options):
    """sacreBLEU takes the seed 0 for a new seed at each call, and a number of samples of 0 or less for its default."""
    with pytest.raises(ValueError, match="0 or more samples and trials, and a seed of at least 1"):
        significance.estimates(METRICS["bleu"], [FIRST, SECOND], [REFERENCE], **options)


def test_tests_that_need_more_memory_than_is_free_are_refused(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 24 * 1000 * 8.0)
    significance.check_memory(24, 1000)
    with pytest.raises(ValueError, match="24 sentences, 1,001 bootstrap samples, which take"):
        significance.check_memory(24, 1001)
    with pytest.raises(ValueError, match="1 bootstrap samples and 10,000 trials"):
        significance.check_memory(24, 1, 10_000)
    monkeypatch.setattr(machine, "free_memory", lambda: 24 * 10_000 * 1.0)
    significance.check_memory(24, 1, 10_000)
    with pytest.raises(ValueError, match="1 bootstrap samples and 10,001 trials"):
        significance.check_memory(24, 1, 10_001)


def test_tests_that_need_more_memory_than_is_free_are_left_out_of_scores_and_comparisons(monkeypatch):
    """With one warning. What needs the memory ran before, and its results are not lost."""
    monkeypatch.setattr(machine, "free_memory", lambda: 24 * 1000 * 8.0)
    needed = "Expected a test that fits into the free memory, 0.0 GB. Received: 24 sentences, 1,001 bootstrap samples"
    with logged() as messages:
        found = scores.scores(FIRST, REFERENCE, samples=1001)
        assert found == scores.scores(FIRST, REFERENCE)
    assert [message.startswith(f"Leaving out confidence intervals. {needed}, which") for message in messages] == [True]
    with logged() as messages:
        assert compared(samples=1001, trials=TRIALS) == compared(samples=0, trials=0)
    said = f"Leaving out confidence intervals and p-values. {needed} and 50 trials, which"
    assert [message.startswith(said) for message in messages] == [True]


def test_scores_have_an_interval_if_samples_are_asked_for():
    found = scores.scores(FIRST, REFERENCE, samples=30)
    plain = scores.scores(FIRST, REFERENCE)
    assert plain.keys() == {"bleu", "signature", "chrf", "chrf_signature", "exact_match", "sentences"}
    assert "case:mixed" in plain["signature"] and "case:mixed" in plain["chrf_signature"]
    assert found.keys() - plain.keys() == {"bleu_mean", "bleu_margin", "chrf_mean", "chrf_margin"}
    assert [found[name] for name in METRICS] == [plain[name] for name in METRICS]
    assert found["exact_match"] == plain["exact_match"]
    for name, metric in METRICS.items():
        [expected], _ = significance.estimates(metric, [FIRST], [REFERENCE], samples=30)
        assert (found[f"{name}_mean"], found[f"{name}_margin"]) == (expected.mean, expected.margin)
    split = scores.compound_split_bleu(FIRST, REFERENCE, language="de", samples=30)
    assert split["compound_split_bleu_margin"] > 0
    split_alone = scores.compound_split_bleu(FIRST, REFERENCE, language="de")
    assert split_alone == {"compound_split_bleu": split["compound_split_bleu"]}


# Comparisons.


def compared(**options) -> Comparison:
    systems = {"first": FIRST, "second": SECOND, "reference": REFERENCE}
    return compare(systems, REFERENCE, **{"samples": SAMPLES, "trials": TRIALS, "seed": SEED, **options})


def test_a_comparison_has_the_estimates_of_each_system():
    found = compared()
    options = {"samples": SAMPLES, "trials": TRIALS, "seed": SEED}
    for name, metric in METRICS.items():
        expected, signature = significance.estimates(metric, [FIRST, SECOND, REFERENCE], [REFERENCE], **options)
        assert [getattr(system, name) for system in found.systems] == expected
        assert signature == {"bleu": found.signature, "chrf": found.chrf_signature}[name]
    assert [system.name for system in found.systems] == ["first", "second", "reference"]
    assert found.sentences == 24


def test_options_are_those_of_the_scores():
    upper = {"a": [line.upper() for line in FIRST], "b": SECOND}
    found = compare(upper, REFERENCE, OTHER_REFERENCE, lowercase=True, tokenize="char", samples=0, trials=0)
    expected = scores.scores(FIRST, REFERENCE, OTHER_REFERENCE, lowercase=True, tokenize="char")
    assert (found.systems[0].bleu.score, found.systems[0].chrf.score) == (expected["bleu"], expected["chrf"])
    assert (found.signature, found.chrf_signature) == (expected["signature"], expected["chrf_signature"])


def test_a_comparison_without_options_has_the_numbers_of_sacrebleu_and_ten_examples(monkeypatch):
    estimates, given = significance.estimates, []

    def without_samples(*args, **options):
        given.append(options)
        return estimates(*args, samples=0)

    monkeypatch.setattr(significance, "estimates", without_samples)
    found = compare({"a": ["x"] * 12, "b": ["y"] * 12}, ["y"] * 12)
    assert given == [{"samples": 1000, "trials": 10_000, "seed": 12345}] * 2
    assert "|case:mixed|" in found.signature and "|tok:13a|" in found.signature and len(found.systems[1].better) == 10


BASELINE = ["a b c", "x y z", "k l", "one two three four.", "same"]
SYSTEM = ["a b c d", "q q q", "k l", "one two three four.", "same"]
GOLD = ["a b c d", "x y z", "k l", "one two three four five.", "same"]


def test_wins_and_losses_by_length_are_counted_by_hand():
    """Lengths in tokens: 4, 3, 2, 6 with the period, 1. The first is better, the second worse, the others the same."""
    found = compare({"a": BASELINE, "b": SYSTEM}, GOLD, samples=0, trials=0)
    assert found.length_of == "reference" and found.systems[0].lengths == ()
    names = "shortest", "longest", "sentences", "wins", "losses", "ties"
    rows = [tuple(getattr(group, name) for name in names) for group in found.systems[1].lengths]
    assert rows == [(1, 1, 1, 0, 0, 1), (2, 2, 1, 0, 0, 1), (3, 3, 1, 0, 1, 0), (4, 4, 1, 1, 0, 0), (6, 6, 1, 0, 0, 1)]
    chrf = sacrebleu.CHRF()
    gains = [
        chrf.sentence_score(b, [g]).score - chrf.sentence_score(a, [g]).score
        for a, b, g in zip(BASELINE, SYSTEM, GOLD, strict=True)
    ]
    assert [group.gain for group in found.systems[1].lengths] == [gains[row] for row in (4, 2, 1, 0, 3)]


def test_groups_are_of_source_lengths_if_the_source_is_known():
    """Ten sentences of 1 to 10 words make five groups of two; sentences of one length stay in one group."""
    source = [" ".join(["w"] * length) for length in range(10, 0, -1)]

    def of(second: list[str], source: list[str]) -> Comparison:
        number = len(second)
        return compare({"a": ["x"] * number, "b": second}, ["y"] * number, source=source, samples=0, trials=0)

    found = of(["x"] * 5 + ["y"] * 5, source)
    groups = found.systems[1].lengths
    assert found.length_of == "source"
    rows = [(group.shortest, group.longest, group.wins) for group in groups]
    assert rows == [(1, 2, 2), (3, 4, 2), (5, 6, 1), (7, 8, 0), (9, 10, 0)]
    assert groups[2].gain == pytest.approx(50)
    shown = [line.split()[:4] for line in report(found).splitlines()]
    assert all([str(group.shortest), "to", str(group.longest), "2"] in shown for group in groups)
    seven = of(["y"] * 7, source[:7]).systems[1].lengths
    assert [(group.shortest, group.longest) for group in seven] == [(4, 5), (6, 6), (7, 8), (9, 9), (10, 10)]
    [alone] = of(["y"] * 10, ["w w"] * 10).systems[1].lengths
    assert (alone.shortest, alone.longest, alone.sentences, alone.wins) == (2, 2, 10, 10)


def test_each_group_has_the_bleu_of_its_sentences():
    """That of sacreBLEU on these sentences alone, with all references, in the case and the tokens of the comparison."""
    reference, other, first, second = (
        [line.upper() for line in text] for text in (REFERENCE, OTHER_REFERENCE, FIRST, SECOND)
    )
    systems = {"a": first, "b": second, "c": other}
    found = compare(systems, REFERENCE, other, samples=0, trials=0, lowercase=True, tokenize="none")
    lengths = [len(line.split()) for line in reference]
    assert len(found.systems[1].lengths) > 2
    for system in found.systems[1:]:
        for group in system.lengths:
            rows = [row for row, length in enumerate(lengths) if group.shortest <= length <= group.longest]
            options, references = {"lowercase": True, "tokenize": "none"}, pick([REFERENCE, other], rows)
            texts = pick([first, systems[system.name]], rows)
            expected = [sacrebleu.corpus_bleu(text, references, **options).score for text in texts]
            assert [group.baseline_bleu, group.bleu] == expected and expected[0] != expected[1]


def test_the_picture_has_the_bleu_of_each_system_by_length():
    systems = {"first": FIRST, "$x$ second": SECOND, "_猫": REFERENCE}
    found = compare(systems, REFERENCE, source=OTHER_REFERENCE, samples=0, trials=0)
    [axes] = comparison_pictures.bleu_by_length(dataclasses.asdict(found)).axes
    groups = found.systems[1].lengths
    bleus = [[group.bleu for group in system.lengths] for system in found.systems[1:]]
    expected = [[group.baseline_bleu for group in groups], *bleus]
    assert [line.get_ydata().tolist() for line in axes.lines] == expected
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*systems]
    ticks = []
    for group in groups:
        begin = f"{group.shortest}–" if group.shortest < group.longest else ""
        ticks.append(f"{begin}{group.longest}\n({group.sentences})")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks
    assert "source" in axes.get_xlabel()


def test_lengths_are_in_tokens_of_the_chosen_tokenizer():
    found = compare({"a": ["x"], "b": ["y"]}, ["猫が公園で遊ぶ"], tokenize="char", samples=0, trials=0)
    assert found.systems[1].lengths[0].longest == 7


def test_examples_are_the_sentences_with_the_largest_gains_and_losses():
    found = compared(examples=3, source=[f"source {line}" for line in range(24)])
    chrf, second = sacrebleu.CHRF(), found.systems[1]
    before, after = (
        [chrf.sentence_score(text, [gold]).score for text, gold in zip(system, REFERENCE, strict=True)]
        for system in (FIRST, SECOND)
    )
    gains = np.subtract(after, before)
    assert [example.line - 1 for example in second.better] == np.argsort(-gains, kind="stable")[:3].tolist()
    assert [example.line - 1 for example in second.worse] == np.argsort(gains, kind="stable")[:3].tolist()
    for example in (*second.better, *second.worse):
        row = example.line - 1
        assert (example.source, example.references) == (f"source {row}", (REFERENCE[row],))
        assert (example.baseline, example.system) == (FIRST[row], SECOND[row])
        assert (example.baseline_chrf, example.chrf) == (before[row], after[row])
    best = found.systems[2]
    assert best.worse == () and all(example.chrf == pytest.approx(100) for example in best.better)
    assert all(example.system == REFERENCE[example.line - 1] for example in best.better)
    assert all(not system.better for system in compared(examples=0).systems)
    with pytest.raises(ValueError, match="`examples` must be 0 or more. Received: examples=-1."):
        compared(examples=-1)  # Story: the last one was left out.


def test_a_sentence_that_is_as_good_is_no_example():
    found = compare({"a": BASELINE, "b": SYSTEM}, GOLD, samples=0, trials=0).systems[1]
    assert [example.line for example in found.better] == [1] and [example.line for example in found.worse] == [2]


def test_a_sentence_that_is_better_or_worse_by_less_than_a_point_is_a_win_or_a_loss():
    long = " ".join(WORDS * 5)
    found = compare({"a": [long + "!", long], "b": [long, long + "!"]}, [long] * 2, samples=0, trials=0).systems[1]
    [group], [gain], [loss] = found.lengths, found.better, found.worse
    assert (gain.line, loss.line) == (1, 2) and 0 < gain.gain < 1 and -1 < loss.gain < 0
    assert (group.wins, group.losses, group.ties) == (1, 1, 0)


def test_several_references_count_for_each_sentence():
    found = compare({"a": ["x y z"], "b": ["one two"]}, ["k l m"], ["one two"], samples=0, trials=0)
    [example] = found.systems[1].better
    assert example.chrf == pytest.approx(100) and example.references == ("k l m", "one two")
    assert "  reference  k l m\n  reference  one two\n" in report(found)
    assert found.systems[1].lengths[0].longest == 3  # Of the first reference.


@pytest.mark.parametrize(
    ("systems", "references", "options", "named"),
    [
        ({"a": ["x"]}, [["x"]], {}, "two systems or more, and one reference or more. Received: 1 system"),
        ({"a": ["x"], "b": ["y"]}, [], {}, "Received: 2 system.*, 0 reference"),
        ({"a": ["x"], "b": ["y", "z"]}, [["x"]], {}, "equally many sentences.* Received: 1, 2, 1"),
        ({"a": ["x"], "b": ["y"]}, [["x"], ["x", "y"]], {}, "Received: 1, 1, 1, 2"),
        ({"a": ["x"], "b": ["y"]}, [["x"]], {"source": ["s", "s"]}, "Received: 1, 1, 1, 2"),
        ({"a": [], "b": []}, [[]], {}, "at least one. Received: 0, 0, 0"),
        ({"a": ["x"], "b": ["y"]}, [["x"]], {"tokenize": "mosses"}, "13a"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(systems, references, options, named):
    with pytest.raises(ValueError, match=named):
        compare(systems, *references, **options)


def test_sentences_may_be_of_any_iterable_but_not_one_string():
    """Story: the letters of a string were compared as sentences, and a generator of references had none."""
    lines = ["a b c d", "e f g h"]
    expected = compare({"a": ["a b c d", "e f"], "b": ["x", "y"]}, lines, source=["s", "t"])
    found = compare({"a": iter(["a b c d", "e f"]), "b": ["x", "y"]}, iter(lines), source=np.array(["s", "t"]))
    assert found == expected and found.length_of == "source"
    for systems, references, source in (
        ({"a": "x", "b": "y"}, ["x"], ()),
        ({"a": ["x"], "b": ["y"]}, "x", ()),
        ({"a": ["x"], "b": ["y"]}, ["x"], "s"),
    ):
        with pytest.raises(TypeError, match="^Systems, references and source must be lists .* Received: a string.$"):
            compare(systems, references, source=source)


def test_systems_without_names_are_refused():
    """Story: an `AttributeError` of `values`, where people gave references first."""
    with pytest.raises(TypeError, match="^Expected the translations of each system by its name, .* Received: list.$"):
        compare(["a"], {"one": ["a"], "two": ["b"]})


def test_blank_lines_are_compared_too():
    found = compare({"a": ["", "x"], "b": ["", ""]}, ["", "x"], samples=SAMPLES, trials=TRIALS)
    assert [(group.sentences, group.losses) for group in found.systems[1].lengths] == [(1, 0), (1, 1)]


# How it is shown.


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a b c", "a x c", [("a ", "a "), ("b", "x"), (" c", " c")]),
        ("a b", "a b c", [("a b", "a b"), ("", " c")]),
        ("", "a", [("", "a")]),
        ("", "", []),
        ("same", "same", [("same", "same")]),
        ("猫が遊ぶ。", "犬が遊ぶ。", [("猫", "犬"), ("が遊ぶ。", "が遊ぶ。")]),
        ("नमस्ते दुनिया", "नमस्कार दुनिया", [("नमस्ते", "नमस्कार"), (" दुनिया", " दुनिया")]),
        ("סלאם יא", "סלאם", [("סלאם", "סלאם"), (" יא", "")]),
        ("カキ", "カク", [("カ", "カ"), ("キ", "ク")]),
        ("々〆", "々〇", [("々", "々"), ("〆", "〇")]),
        ("㐀㐁", "㐀㐂", [("㐀", "㐀"), ("㐁", "㐂")]),
        ("\uf900\uf901", "\uf900\uf902", [("\uf900", "\uf900"), ("\uf901", "\uf902")]),  # Compatibility ideographs.
        ("𠀀𠀁", "𠀀𠀂", [("𠀀", "𠀀"), ("𠀁", "𠀂")]),
        ("한국 말", "한글 말", [("한국", "한글"), (" 말", " 말")]),
        # A mark belongs to its letter, and so does what selects a variant.
        ("กินข้าว", "กันข้าว", [("กิ", "กั"), ("นข้าว", "นข้าว")]),
        ("葛\U000e0100城", "葛\U000e0101城", [("葛\U000e0100", "葛\U000e0101"), ("城", "城")]),
    ],
)
def test_differences_are_by_words_or_by_characters_of_scripts_without_spaces(first, second, expected):
    assert word_differences(first, second) == expected


def test_frequent_words_of_long_texts_are_compared_too():
    """difflib leaves them out of texts of 200 words or more, unless it is told not to."""
    words = ["a", "b"] * 120
    assert word_differences(" ".join([*words, "c", *words]), " ".join([*words, "d", *words]))[1] == ("c", "d")


def test_long_texts_that_repeat_a_word_are_compared_at_their_ends_alone():
    """Story: translations that loop took minutes."""
    one, other = "x y " + "a " * 2000 + "end", "x z " + "a b " * 1000 + "end"
    started = time.perf_counter()
    parts = word_differences(one, other)
    assert time.perf_counter() - started < 1
    assert parts[0] == ("x ", "x ") and parts[-1] == (" end", " end") and len(parts) == 3
    assert tuple("".join(side) for side in zip(*parts, strict=True)) == (one, other)
    assert word_differences(one, one) == [(one, one)]


def test_the_parts_of_differences_make_both_texts():
    for pair in zip(FIRST, SECOND, strict=True):
        parts = word_differences(*pair)
        assert tuple("".join(side) for side in zip(*parts, strict=True)) == pair
        assert max(len(set(part)) for part in parts) == 1 or pair[0] != pair[1]


def test_the_report_has_every_figure():
    found = compared(examples=1, source=["the source"] * 24)
    text = report(found)
    lines = text.splitlines()
    assert lines[0].startswith("24 sentences. p is the probability of a difference from first")
    for name in ("bleu", "chrf"):
        for system in found.systems[1:]:
            estimate = getattr(system, name)
            row = [f"{estimate.score:.2f}", f"{estimate.mean:.2f}", f"{estimate.margin:.2f}", f"{estimate.p_value:.4f}"]
            assert [system.name, *row, f"{estimate.randomization_p_value:.4f}"] in [line.split() for line in lines]
    assert found.signature in lines and found.chrf_signature in lines
    for group in (*found.systems[1].lengths, *found.systems[2].lengths):
        counts = [group.wins, group.losses, group.ties]
        lengths = [str(group.shortest), *(["to", str(group.longest)] if group.longest > group.shortest else [])]
        bleus = [f"{group.baseline_bleu:.2f}", f"{group.bleu:.2f}"]
        row = [*lengths, str(group.sentences), *bleus, *map(str, counts), f"{group.gain:+.2f}"]
        assert row in [line.split() for line in lines]
    [gain], [loss], [of_third] = found.systems[1].better, found.systems[1].worse, found.systems[2].better
    examples = (gain, "second", "gains"), (loss, "second", "loses"), (of_third, found.systems[2].name, "gains")
    for example, system, verb in examples:
        points = f"{abs(example.gain):.1f}, from {example.baseline_chrf:.1f} to {example.chrf:.1f}"
        start = text.index(f"line {example.line}: {system} {verb} {points}")
        shown = text[start:].split("\n\n")[0].splitlines()
        assert shown[1].split(None, 1) == ["source", "the source"]
        assert shown[2].split(None, 1) == ["reference", example.references[0]]
        of_systems = (shown[3], "first", example.baseline, "[-"), (shown[4], system, example.system, "{+")
        for line, name, own, marks in of_systems:
            assert line.split(None, 1)[0] == name and marks in line
            assert "".join(part for part in line.split(None, 1)[1] if part not in "[-]{+}") == own


def test_the_columns_of_a_report_are_aligned():
    """The first to the left, numbers to the right."""
    systems = {"a": ["a b c d", "x y"], "long name": ["a b c d", "a"]}
    text = report(compare(systems, ["a b c d", "a b"], samples=0, trials=0))
    bleu, chrf, lengths, example = [part.splitlines() for part in text.split("\n\n")[1:]]
    assert bleu[:3] == ["BLEU       score", "a          84.09", "long name  81.87"]
    assert chrf[:3] == ["chrF2      score", "a          85.42", "long name  91.49"]
    assert lengths[1:] == [
        "tokens of the reference  sentences  baseline BLEU    BLEU  wins  losses  ties  mean gain",
        "2                                1           0.00    0.00     1       0     0     +55.56",
        "4                                1         100.00  100.00     0       0     1      +0.00",
    ]
    assert example[1:] == ["  reference  a b", "  a          [-x y-]", "  long name  {+a+}"]


def test_the_report_has_the_columns_of_the_tests_that_were_made():
    none, swapped, drawn = (
        report(compared(**each)) for each in ({"samples": 0, "trials": 0}, {"samples": 0}, {"trials": 0})
    )
    assert "p (" not in none and "±" not in none
    assert "p (bootstrap)" not in swapped and "p (randomization)" in swapped
    assert "p (bootstrap)" in drawn and "p (randomization)" not in drawn


STRANGE = ["</script><script>alert(1)</script>", "<b>&amp;</b> {{data}}", "السلام عليكم", "\u2028 \x00 😀"]
PAGE = pages.comparison_page(
    dataclasses.asdict(compare({"<i>a": STRANGE, "b&": STRANGE[::-1]}, STRANGE, samples=2, trials=2))
)


def test_the_data_of_a_page_are_the_comparison_with_the_parts_of_each_pair():
    found = compared(examples=2)
    data = json.loads(Elements(pages.comparison_page(dataclasses.asdict(found))).scripts[0])
    given = [example for system in data["systems"] for side in ("better", "worse") for example in system[side]]
    parts, alignments = ([example.pop(name) for example in given] for name in ("parts", "alignments"))
    assert data == json.loads(json.dumps(dataclasses.asdict(found)))
    examples = [example for system in found.systems for side in (system.better, system.worse) for example in side]
    assert len(examples) == 6
    assert parts == [list(map(list, word_differences(example.baseline, example.system))) for example in examples]
    assert alignments == [[None, None]] * 6


def test_a_page_has_the_alignment_of_each_system_with_the_same_source():
    found, source = compared(examples=1, source=[f"source {number}" for number in range(len(REFERENCE))]), []
    page = pages.comparison_page(dataclasses.asdict(found), lambda *asked: source.append(asked) or [[len(source)]])
    first, *others = found.systems
    expected = [
        (name, example.source, text)
        for system in others
        for example in (*system.better, *system.worse)
        for name, text in ((first.name, example.baseline), (system.name, example.system))
    ]
    assert source == expected and len({system for system, *_ in expected}) == 3
    systems = json.loads(Elements(page).scripts[0])["systems"]
    shown = [example["alignments"] for system in systems for side in ("better", "worse") for example in system[side]]
    assert shown == [[[[1.0 + 2 * pair]], [[2.0 + 2 * pair]]] for pair in range(len(shown))]


def test_no_text_gets_out_of_the_data_of_a_page():
    plain = Elements(pages.comparison_page(dataclasses.asdict(compared())))
    page = Elements(PAGE)
    assert page.tags == plain.tags and page.scripts[1:] == plain.scripts[1:] and len(page.scripts) == 2
    assert not set("<>&") & set(page.scripts[0])
    assert [system["name"] for system in json.loads(page.scripts[0])["systems"]] == ["<i>a", "b&"]
