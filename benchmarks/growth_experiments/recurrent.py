"""How the time of an update grows with the length of sentences: a recurrent translator beside a Transformer, of the
sizes for Multi30k.

All updates have the same number of tokens, in sentences of one length without padding. The steps of a recurrence follow
one another, and there are as many as a sentence has tokens (Table 1: sequential operations); each step has fewer
sentences, the longer they are.
"""

from benchmarks import flagfiles
from benchmarks.growth_experiments.experiment import Experiment, Panel
from benchmarks.growth_experiments.training import TOKENS, train
from t2t_keras.config import ModelConfig, RnnConfig

LENGTHS = (8, 16, 32, 64, 128, 256)
TRANSFORMER_MODEL = ModelConfig(**flagfiles.options("multi30k_en_de", ModelConfig))
RECURRENT_MODEL = RnnConfig(**flagfiles.options("multi30k_en_de_rnn", RnnConfig))


def _of_length(title: str, theory: str, **options) -> Experiment:
    panel = Panel("seconds", title, f"seconds for an update of {TOKENS:,} tokens a side", lambda n: (1, n), theory)
    return Experiment(
        "length of all sentences", LENGTHS, lambda length: train(length=length, dtype="float32", **options), (panel,)
    )


EXPERIMENTS = {
    "recurrent_length": _of_length(
        "Recurrent translator",
        "constant + ∝ length: steps one after another",
        model=RECURRENT_MODEL,
        architecture="rnn",
    ),
    "transformer_length": _of_length("Transformer", "constant + ∝ length: attention weights", model=TRANSFORMER_MODEL),
}
