"""Options of search (section 6.1), of sampling and of ensembles."""

import dataclasses
import functools
import numbers
from collections.abc import Sequence

from t2t_keras.config.options import SEARCH, check_fields, option, require

OF_DEVICES = ("search_rows", "search_cores")  # Options of `DecodeConfig` that change no translation.
SAMPLING = "Sampling"  # Heading of the options of `SampleConfig`.
MAX_ALPHA = 10  # Exponent of the length penalty: float32 holds the penalty of all lengths.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0  # Of sampling: float32 holds all logits divided by these.
TEMPERATURES = f"{MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
TRANSLATING_DTYPES = ("float32", "bfloat16")  # Of the weights and the arithmetic of a loaded run.
# How the predictions of several models are averaged; see `model.ensemble.combine`.
ENSEMBLE_MEANS = ("probabilities", "logs")
# What a run that reranks was trained on; see `decoding.reranking`.
RERANK_DIRECTIONS = ("forward", "right_to_left", "backward")


def check_ensemble(models: int, weights: Sequence[float], mean: str) -> None:
    """Raises `ValueError` if the options of an ensemble are invalid for this number of models."""
    weights = list(weights)
    possible = all(isinstance(weight, numbers.Real) and 1e-6 <= weight <= 1e6 for weight in weights)
    if weights and not (len(weights) == models > 1 and possible):
        expected = "several models with `ensemble_weights`"
        if models > 1:
            expected = f"{models} `ensemble_weights`, numbers of 1e-6 to 1e6"
        raise ValueError(f"Expected {expected}. Received: {', '.join(map(str, weights))}.")
    if mean not in ENSEMBLE_MEANS:
        raise ValueError(f"Expected `ensemble_mean` to be one of {', '.join(ENSEMBLE_MEANS)}. Received: {mean}.")


_option = functools.partial(option, group=SEARCH, task="generates")


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
    """Options of beam search (section 6.1)."""

    # fmt: off
    beam_size: int = _option(
        4, "Beam size; 1 is greedy search (section 6.1).", minimum=1, maximum=2**12, first=True)
    alpha: float = _option(
        0.6, "Exponent of the length penalty (section 6.1): score = log P / ((5 + |Y|) / 6)^alpha.",
        minimum=0, maximum=MAX_ALPHA)
    extra_length: int = _option(
        50, "Maximum length of a translation minus the length of its source, in sub-words (section 6.1).",
        minimum=0, maximum=2**16)
    max_input: int = _option(
        1024, "Maximum length of a source in sub-words, end token included; longer sources are truncated.",
        minimum=2, maximum=2**16)
    no_repeat_ngram: int = _option(
        0, "Size n of the sequences of sub-words, n-grams, that a translation may not repeat (Paulus et al. 2017); 0 "
        "allows all.", minimum=0, maximum=2**16)
    diverse_groups: int = _option(
        1, "Number of groups of beams, each of which avoids the sub-words of earlier groups (Vijayakumar et al. "
        "2016).", minimum=1, maximum=2**12)
    diversity: float = _option(
        0.5, "Penalty of --diverse_groups on the score of a sub-word, for each beam of earlier groups that chose it "
        "at the same position.", minimum=0, needs="diverse_groups!=1")
    search_rows: int = _option(
        0, "Maximum number of sentences in a step of the search; 0: 256 on a GPU, otherwise 32. In an export 0 is 32.",
        minimum=0, maximum=2**12)
    search_cores: int = _option(
        0, "Number of cores that a batch is divided among; 0: all of this process, or 1 on a GPU. In an export 0 is "
        "1.", minimum=0, maximum=2**10)
    # fmt: on

    def __post_init__(self):
        check_fields(self)
        require(self, self.beam_size % self.diverse_groups == 0, "`diverse_groups` must divide `beam_size`.")

    @property
    def of_translations(self) -> dict[str, float]:
        """The options that translations depend on, by name: all but those of the devices."""
        return {name: value for name, value in vars(self).items() if name not in OF_DEVICES}


@dataclasses.dataclass(frozen=True)
class SampleConfig:
    """Options of sampling, which are given with each translation: a run does not record them."""

    # fmt: off
    draws: int = option(1, "Number of translations to draw of each sentence.", minimum=1, maximum=1000, group=SAMPLING)
    seed: int = option(1, "Seed of the draws; line n has its own, made of this and n.", minimum=0, group=SAMPLING)
    temperature: float = option(
        1.0, "Temperature of sampling: a sub-word is drawn with a probability proportional to P^(1 / temperature); 1: "
        "the model's own P.", minimum=MIN_TEMPERATURE, maximum=MAX_TEMPERATURE, group=SAMPLING)
    top_k: int = option(0, "Number of most likely sub-words to draw from; 0: all.", minimum=0, group=SAMPLING)
    top_p: float = option(
        1.0, "Draw from the fewest most likely sub-words that have this probability together (Holtzman et al. 2020); "
        "1: from all.", above=0, maximum=1, group=SAMPLING)
    # fmt: on

    def __post_init__(self):
        check_fields(self)
