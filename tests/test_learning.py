"""The project learns: from text files by its own loop to translations of new lines, which have to be exactly right."""

import dataclasses
import random

import pytest

from t2t_keras.config import DataConfig, DecodeConfig, ModelConfig, RnnConfig, TrainConfig
from t2t_keras.decoding.loading import load
from t2t_keras.decoding.translator import translate_lines
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.training import devices, run

WORDS = "abcdefgh"
TASKS = {"copy": list, "sort": sorted}
# Bytes and special ids; the mark of a word's beginning; each word with and without it.
VOCAB_SIZE = 256 + 4 + 1 + 2 * len(WORDS)
MODEL = ModelConfig(
    VOCAB_SIZE, encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, num_heads=4, d_k=8, d_v=8, dropout=0.0
)
NO_DROPOUT = dict.fromkeys(("embedding_dropout", "context_dropout", "output_dropout"), 0.0)
RNN = RnnConfig(VOCAB_SIZE, d_model=32, **NO_DROPOUT)
TRAIN = TrainConfig(
    train_steps=400, warmup_steps=50, learning_rate_factor=0.3, label_smoothing=0.0, batch_tokens=800,
    buckets_per_update=1, micro_batch_tokens=800, valid_steps=400, valid_sentences=0, best_metric="loss",
    checkpoint_steps=20, keep_checkpoints=4,
)  # fmt: skip


def write_text(folder, task: str) -> tuple[DataConfig, list[str], list[str]]:
    """Writes training and validation files. Returns where they are, and lines that are in neither, with their
    translations.
    """
    draw = random.Random(1)
    lines = [tuple(draw.choices(WORDS, k=draw.randint(3, 6))) for _ in range(3300)]
    seen = set(lines[:3100])
    test = [line for line in lines[3100:] if line not in seen]
    assert len(test) > 100
    paths = {}
    for split, part in (("train", lines[:3000]), ("valid", lines[3000:3100])):
        for side, convert in (("source", list), ("target", TASKS[task])):
            path = folder / f"{split}.{side}"
            path.write_text("".join(f"{' '.join(convert(line))}\n" for line in part))
            paths[f"{split}_{side}"] = str(path)
    return DataConfig(**paths), [" ".join(line) for line in test], [" ".join(TASKS[task](line)) for line in test]


def exact_match(folder, task: str, *, replicas: int = 1, model: ModelConfig | RnnConfig = MODEL, **options) -> float:
    """The share of new lines that a model gets exactly right."""
    data, sources, references = write_text(folder, task)
    train, decode = TrainConfig(**{**vars(TRAIN), **options}), DecodeConfig(beam_size=2)
    architecture = "rnn" if isinstance(model, RnnConfig) else run_options.TRANSFORMER
    chosen = run_options.Options(model, train, decode, data, architecture=architecture)
    run.train(Start.of(folder / "run", chosen), strategy=devices.make_strategy(replicas))
    translator = load(folder / "run")
    hypotheses = [result["text"] for result in translate_lines(translator, sources)]
    return sum(map(str.__eq__, hypotheses, references)) / len(references)


@pytest.mark.medium
def test_copying_is_learned_exactly(tmp_path):
    assert exact_match(tmp_path, "copy") == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"replicas": 2},
    {"micro_batch_tokens": 200},
    {"replicas": 2, "micro_batch_tokens": 200, "buckets_per_update": 4},
    {"dtype": "bfloat16"},
], ids=["two devices", "micro-batches", "two devices with micro-batches", "bfloat16"])  # fmt: skip
def test_copying_is_learned_exactly_however_an_update_is_computed(tmp_path, options):
    assert exact_match(tmp_path, "copy", **options) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("model", "options"), [
    ({}, {}),
    ({"cell": "lstm", "attention": "scaled", "layer_norm": False}, {}),
    ({"attention": "unscaled", "layer_norm": False, "tie_logits": False}, {"replicas": 2, "micro_batch_tokens": 200}),
    ({"encoder_layers": 2, "d_embedding": 16}, {"dtype": "bfloat16"}),
], ids=["defaults", "lstm, scaled", "unscaled, two devices with micro-batches", "two layers, bfloat16"])  # fmt: skip
def test_copying_is_learned_exactly_by_the_recurrent_translator(tmp_path, model, options):
    assert exact_match(tmp_path, "copy", model=dataclasses.replace(RNN, **model), **options) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"replicas": 2, "micro_batch_tokens": 200, "dtype": "bfloat16"}], ids=["one device", "all at once"]
)
def test_sorting_is_learned_almost_exactly(tmp_path, options):
    assert exact_match(tmp_path, "sort", train_steps=600, **options) > 0.98
