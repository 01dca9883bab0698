"""Options: the defaults are the paper's, every invalid one is refused by name, and what is written is what is read."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from t2t_keras import config
from t2t_keras.config import (
    BertConfig,
    ClassifierConfig,
    DataConfig,
    DecodeConfig,
    FilterConfig,
    ModelConfig,
    RnnConfig,
    SampleConfig,
    TrainConfig,
    paper,
)
from t2t_keras.runs.saved_run import SavedRun

ROOT = pathlib.Path(config.__file__).parent.parent
BIG = paper.model("big")
GROUPS = {
    "model": ModelConfig,
    "rnn": RnnConfig,
    "bert": BertConfig,
    "classifier": ClassifierConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
    "data": DataConfig,
    "filter": FilterConfig,
}


def test_the_defaults_are_the_base_model_and_its_training_and_search():
    train, decode = TrainConfig(), DecodeConfig()
    assert ModelConfig() == paper.model("base")
    # 5.2 to 5.4
    assert (train.train_steps, train.warmup_steps, train.label_smoothing, train.clip_norm) == (100_000, 4000, 0.1, 0)
    assert (train.batch_tokens, train.checkpoint_minutes, train.keep_checkpoints) == (25_000, 10, 5)  # 5.1, 6.1
    assert (decode.beam_size, decode.alpha, decode.extra_length) == (4, 0.6, 50)  # 6.1


def test_other_defaults_are_those_of_the_documentation():
    train, decode, data = TrainConfig(), DecodeConfig(), DataConfig()
    assert (train.micro_batch_tokens, train.buckets_per_update, train.seed, train.dtype) == (8192, 4, 1, "float32")
    assert (train.damaged_records, train.best_metric, train.deterministic) == ("stop", "bleu", False)
    assert (train.checkpoint_steps, train.valid_steps, train.log_steps, train.valid_sentences) == (1000, 1000, 100, 500)
    assert (train.attention_images, train.max_skipped, train.learning_rate_factor) == (1, 20, 1.0)
    off = "clip_norm device_tflops histogram_steps patience max_hours parent data_service profile_steps"
    assert not any(getattr(train, name) for name in off.split())
    assert (decode.max_input, data.max_length, data.builtin_pairs, data.vocab_sample) == (1024, 256, 40_000, 2_000_000)
    assert (data.subwords, data.normalization, data.character_coverage) == ("bpe", "identity", 0.9995)
    assert not data.skip_bad_lines
    assert (data.train_split, data.valid_split) == ("train", "validation")


def test_the_special_ids_are_four_different_ones_and_padding_is_zero():
    assert config.PAD == 0 and {config.PAD, config.UNK, config.BOS, config.EOS} == {0, 1, 2, 3}


@pytest.mark.parametrize("group", GROUPS.values())
def test_every_default_is_valid_and_explained(group):
    options = group()
    for field in dataclasses.fields(group):
        assert field.metadata["help"].endswith("."), field.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, field.name, getattr(options, field.name))


INVALID = [
    *(
        (ModelConfig, {name: value})
        for name in ("encoder_layers", "decoder_layers", "d_ff", "num_heads", "d_k", "d_v")
        for value in (0, -2)
    ),
    (ModelConfig, {"d_model": 0}),
    (ModelConfig, {"d_model": 511}),
    (ModelConfig, {"vocab_size": 4}),
    *(
        (group, {name: value})
        for group, name in ((ModelConfig, "dropout"), (TrainConfig, "label_smoothing"))
        for value in (-0.1, 1.0)
    ),
    (ModelConfig, {"dropout": float("nan")}),
    *(
        (ModelConfig, {name: value})
        for name in ("attention_dropout", "activation_dropout", "word_dropout")
        for value in (-0.1, 1.0)
    ),
    (ModelConfig, {"attention_dropout": 0.1, "attention_window": 4}),
    *((ModelConfig, {name: -0.5}) for name in ("r_drop", "simcut")),
    (ModelConfig, {"r_drop": 1.0, "simcut": 1.0}),
    (ModelConfig, {"r_drop": 1.0, "dropout": 0.0}),
    (ModelConfig, {"simcut": 3.0, "word_dropout": 0.0}),
    (ModelConfig, {"learned_positions": -1}),
    (ModelConfig, {"attention_window": -1}),
    *((ModelConfig, options) for options in ({"attention": "dot"}, {"attention": "additive", "attention_window": 4})),
    (ModelConfig, {"activation": "tanh"}),
    (ModelConfig, {"norm": "both"}),
    (ModelConfig, {"sinusoids": "marian"}),
    (ModelConfig, {"first_position": -1}),
    (ModelConfig, {"sinusoids": "tensor2tensor", "d_model": 2}),
    (ModelConfig, {"sinusoids": "tensor2tensor", "learned_positions": 9}),
    (ModelConfig, {"first_position": 2, "learned_positions": 9}),
    *((group, {"source_vocab_size": size}) for group in (ModelConfig, RnnConfig) for size in (-1, 4)),
    *((RnnConfig, {name: 0}) for name in ("d_model", "encoder_layers")),
    (RnnConfig, {"d_embedding": -1}),
    *((group, {"num_heads": number}) for group in (BertConfig, ClassifierConfig) for number in (0, 7)),
    *((BertConfig, {name: 0}) for name in ("d_model", "encoder_layers", "d_ff", "mask_rate")),
    *((BertConfig, {name: -1}) for name in ("learned_positions", "dropout")),
    *((BertConfig, {name: "tanh"}) for name in ("activation", "norm")),
    (BertConfig, {"mask_rate": 1.0}),
    *((ClassifierConfig, {"labels": labels}) for labels in ("a", "a,a", "a,,b")),
    (TrainConfig, {"encoder_from": "a", "parent": "b"}),
    (TrainConfig, {"encoder_from": "a", "parent_checkpoint": "best", "parent_optimizer": True}),
    *((RnnConfig, {name: "tanh"}) for name in ("cell", "attention")),
    *(
        (RnnConfig, {name: rate})
        for name in ("embedding_dropout", "context_dropout", "output_dropout")
        for rate in (-0.1, 1.0)
    ),
    *((ModelConfig, {"norm_epsilon": epsilon}) for epsilon in (0.0, 1.0)),
    *((TrainConfig, {name: 0}) for name in ("train_steps", "warmup_steps", "batch_tokens", "micro_batch_tokens")),
    *((TrainConfig, {name: 0}) for name in ("keep_checkpoints", "valid_steps", "log_steps")),
    *((TrainConfig, {name: -1}) for name in ("checkpoint_steps", "checkpoint_minutes", "valid_sentences")),
    *((TrainConfig, {name: -1}) for name in ("patience", "clip_norm")),
    (TrainConfig, {"learning_rate_factor": 0.0}),
    (TrainConfig, {"cooldown_steps": -1}),
    (TrainConfig, {"freeze": " , /"}),
    (TrainConfig, {"parent": "a", "parent_checkpoint": "ema", "parent_optimizer": True}),
    (TrainConfig, {"parent": "a", "parent_optimizer": True}),
    *(
        (TrainConfig, {"parent": "a", "parent_checkpoint": "latest", "parent_optimizer": True} | other)
        for other in ({"ema_decay": 0.9}, {"cooldown_steps": 5}, {"freeze": "encoder"}, {"parent_subwords": False})
    ),
    *((TrainConfig, {name: -1}) for name in ("learning_rate", "micro_batches_at_once")),
    *((DecodeConfig, {name: -1}) for name in ("search_rows", "search_cores")),
    (TrainConfig, {"embeddings": "v", "encoder_from": "e"}),
    *((TrainConfig, {"bpe_dropout": value}) for value in (-0.1, 1.0)),
    (TrainConfig, {"bpe_dropout": 0.1, "data_service": "grpc://host:1"}),
    (TrainConfig, {"ema_decay": 1.0}),
    (TrainConfig, {"ema_decay": -0.1}),
    *(
        (DataConfig, {"source_tag": tag})
        for tag in ("a b", "<", "▁x", "x" * 65, "<pad>", "</s>", "<0xA0>", "｟7｠", "<2de>,<unk>")
    ),
    (DataConfig, {"source_tag": "<2de>,<2fr>", "dataset": "builtin"}),
    (TrainConfig, {"freeze_embeddings": -1}),
    (TrainConfig, {"embeddings": "v", "parent": "p"}),
    (DataConfig, {"subwords": "word", "normalization": "nfkc"}),
    (DataConfig, {"subwords": "words"}),
    (TrainConfig, {"parent_checkpoint": "newest"}),
    *(
        (TrainConfig, {"data_service": address})
        for address in ("nonsense", "grpc://host", "grpc://:1", "http://host:1", "grpc://host:0", "grpc://host:65536")
    ),
    (TrainConfig, {"cooldown_steps": 11, "train_steps": 10}),
    (TrainConfig, {"dtype": "float8"}),
    (TrainConfig, {"deterministic": True, "data_service": "grpc://localhost:5050"}),
    (TrainConfig, {"checkpoint_steps": 0, "checkpoint_minutes": 0}),
    (DecodeConfig, {"beam_size": 0}),
    *((DecodeConfig, {"alpha": alpha}) for alpha in (-0.1, -5.0, float("inf"))),
    (DecodeConfig, {"extra_length": -1}),
    (DecodeConfig, {"max_input": 1}),
    (DataConfig, {"train_target": "a.de"}),
    (DataConfig, {"valid_target": "a.de"}),
    (DataConfig, {"dataset": "wmt14_translate/de-en"}),
    (DataConfig, {"dataset": "wmt14_translate/de-en", "source_language": "en"}),
    (DataConfig, {"max_length": 1}),
    (DataConfig, {"character_coverage": 0.0}),
    (DataConfig, {"character_coverage": 1.5}),
    (
        DataConfig,
        {"character_coverage": 0.9799, "subwords": "word"},
    ),  # Story: SentencePiece refused it with code of its own.
    (DataConfig, {"builtin_pairs": 0}),
    (DataConfig, {"vocab_sample": 0}),
    (TrainConfig, {"seed": -1}),
    (TrainConfig, {"histogram_steps": -1}),
    *((TrainConfig, {name: 0}) for name in ("buckets_per_update", "max_skipped")),
    *((TrainConfig, {name: -1}) for name in ("attention_images", "max_hours", "device_tflops")),
    (TrainConfig, {"damaged_records": "ask"}),
    (DecodeConfig, {"alpha": 10.1}),
    (DecodeConfig, {"no_repeat_ngram": -1}),
    (DecodeConfig, {"diverse_groups": 0}),
    (DecodeConfig, {"diverse_groups": 3, "beam_size": 4}),
    (DecodeConfig, {"diverse_groups": 8, "beam_size": 4}),
    *((DecodeConfig, {"diversity": value}) for value in (-0.1, float("inf"))),
    *((SampleConfig, {"draws": value}) for value in (0, -1, 1001)),
    (SampleConfig, {"seed": -1}),
    *((SampleConfig, {"temperature": value}) for value in (0.0, -1.0, 0.009, 101.0, float("nan"))),
    (SampleConfig, {"top_k": -1}),
    *((SampleConfig, {"top_p": value}) for value in (0.0, -0.5, 1.1, float("nan"))),
    *((FilterConfig, {name: -1.0}) for name in ("max_length_ratio", "length_ratio", "max_cross_entropy")),
    *((FilterConfig, {"min_letters": value}) for value in (-1.0, 1.01)),
    *((FilterConfig, {name: 1.01}) for name in ("min_script", "min_language")),
    *((FilterConfig, {name: "both"}) for name in ("duplicates", "near_duplicates")),
    (FilterConfig, {"max_characters": -1}),
    *((FilterConfig, {"max_length_ratio": value}) for value in (0.5, 1.0)),
    (DataConfig, {"max_length": 2**15}),
    (DataConfig, {"vocab_sample": 100}),
    (DataConfig, {"source_language": "en", "target_language": "en"}),
    (DataConfig, {"dataset": "builtin", "source_language": "de", "target_language": "en"}),
    (DataConfig, {"normalization": "lower"}),
    (DataConfig, {"subwords": "unigram"}),
    (DataConfig, {"subwords": "wordpiece", "normalization": "nfkc"}),
    *((TrainConfig, {"profile_steps": steps}) for steps in ("10", "20,10", "0,5", "10,20,", "1,x", "١,٢", " 1,2")),
]


@pytest.mark.parametrize(
    ("group", "options"), INVALID, ids=lambda each: each.__name__ if isinstance(each, type) else str(each)
)
def test_an_invalid_option_is_refused_with_its_name_and_value(group, options):
    with pytest.raises(ValueError, match=r"^[A`E].*\. Received: ") as error:
        group(**options)
    received = str(error.value).split("Received: ")[1]
    for name, value in options.items():
        assert f"{name}={value!r}" in received


def test_sub_words_of_an_imported_model_are_not_learned():
    DataConfig(subwords="sentencepiece")  # Of a data folder.
    DataConfig(subwords="sentencepiece", subwords_file="a", dataset="builtin")
    with pytest.raises(ValueError, match="imported .*sub-words. Received: subwords='sentencepiece', subwords_file=''"):
        DataConfig(subwords="sentencepiece", dataset="builtin")


def test_a_sample_is_one_draw_from_the_whole_distribution_with_seed_1_unless_asked_otherwise():
    assert SampleConfig() == SampleConfig(draws=1, seed=1, temperature=1.0, top_k=0, top_p=1.0)


def test_text_files_and_a_dataset_together_are_refused_with_both():
    with pytest.raises(ValueError, match=r"Received: dataset='builtin', train_source='a\.en'"):
        DataConfig(dataset="builtin", train_source="a.en", train_target="a.de")
    with pytest.raises(ValueError, match=r"Received: dataset='builtin', .*valid_source='a\.en'"):
        DataConfig(dataset="builtin", valid_source="a.en", valid_target="a.de")


@pytest.mark.parametrize(("group", "options"), [
    (ModelConfig, {"vocab_size": 5, "dropout": 0.0, "d_model": 2, "num_heads": 3, "d_k": 1}),
    (TrainConfig, {"best_metric": "loss", "valid_sentences": 0}),
    (TrainConfig, {"checkpoint_steps": 0}),
    (TrainConfig, {"cooldown_steps": 10, "train_steps": 10}),
    (TrainConfig, {"cooldown_steps": 11, "train_steps": 10, "epochs": 2.0}),  # Whose updates are counted later.
    (TrainConfig, {"checkpoint_minutes": 0.0}),
    (TrainConfig, {"label_smoothing": 0.0, "dtype": "bfloat16"}),
    (DecodeConfig, {"beam_size": 1, "alpha": 0.0, "extra_length": 0}),
    (TrainConfig, {"profile_steps": "1,1", "seed": 0, "dtype": "float16", "damaged_records": "skip"}),
    (TrainConfig,
     {name: 1 for name in ("train_steps", "warmup_steps", "batch_tokens", "buckets_per_update", "micro_batch_tokens")}),
    (TrainConfig, {name: 1 for name in ("keep_checkpoints", "valid_steps", "log_steps", "max_skipped")}),
    (TrainConfig, {"deterministic": True}),
    (TrainConfig, {"embeddings": "vectors.txt", "freeze_embeddings": 1, "ema_decay": 0.0}),
    (TrainConfig, {"data_service": "grpc://localhost:5050"}),
    (DecodeConfig, {"max_input": 2, "alpha": 10.0}),
    (DecodeConfig, {"diverse_groups": 6, "beam_size": 6, "diversity": 0.0, "no_repeat_ngram": 1}),
    (SampleConfig, {"draws": 1000, "seed": 0, "temperature": 0.01, "top_k": 1, "top_p": 1e-9}),
    (SampleConfig, {"temperature": 100.0, "top_p": 1.0}),
    (FilterConfig,
     {"max_characters": 0, "max_length_ratio": 0.0, "min_letters": 1.0, "min_script": 1.0, "min_language": 1.0}),
    (FilterConfig, {"max_length_ratio": 1.01, "min_letters": 0.0, "duplicates": "none", "near_duplicates": "source"}),
    (DataConfig, {"dataset": "builtin"}),
    (DataConfig, {"dataset": "builtin", "source_language": "en", "target_language": "de"}),
    (DataConfig, {"max_length": 2, "vocab_sample": 101, "builtin_pairs": 1, "character_coverage": 1.0}),
    (DataConfig, {"max_length": 2**15 - 1, "character_coverage": 0.98}),
    (DataConfig, {"subwords": "wordpiece", "character_coverage": 1e-6}),
    (DataConfig, {"subwords": "bpe", "normalization": "nfkc_cf"}),
    (DataConfig, {"subwords": "wordpiece", "normalization": "identity"}),
    *((DataConfig, {"normalization": name}) for name in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf")),
    *((ModelConfig, {name: 1}) for name in ("encoder_layers", "decoder_layers", "d_ff", "num_heads", "d_k", "d_v")),
    (RnnConfig, {"vocab_size": 5, "d_model": 1, "d_embedding": 1, "encoder_layers": 1, "source_vocab_size": 5}),
    *(
        (RnnConfig, {"cell": cell, "attention": name})
        for cell, name in (("gru", "scaled"), ("lstm", "unscaled"), ("gru", "additive"))
    ),
    *((RnnConfig, {name: 0.0}) for name in ("embedding_dropout", "context_dropout", "output_dropout")),
    (BertConfig,
     {"vocab_size": 5, "encoder_layers": 1, "d_model": 2, "d_ff": 1, "num_heads": 2, "learned_positions": 0}),
    (BertConfig, {"mask_rate": 0.99, "whole_words": True}),
    (ClassifierConfig, {"labels": "0,1"}),
    (TrainConfig, {"encoder_from": "a", "parent_checkpoint": "best", "parent_subwords": False}),
    (DataConfig, {"dataset": "wmt14_translate/de-en", "source_language": "en", "target_language": "de"}),
    (DataConfig, {"train_source": "a.en", "train_target": "a.de", "valid_source": "b.en", "valid_target": "b.de"}),
])  # fmt: skip
def test_options_at_the_edge_of_what_is_valid_are_accepted(group, options):
    made = group(**options)
    assert {name: getattr(made, name) for name in options} == options


def test_what_is_written_as_json_is_what_is_read(tmp_path):
    written = {
        "model": BIG,
        "train": TrainConfig(seed=9, checkpoint_minutes=2.5),
        "data": DataConfig(dataset="builtin", normalization="nfkc"),
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps({name: dataclasses.asdict(group) for name, group in written.items()}), encoding="utf-8")
    run = SavedRun.open(tmp_path)
    assert (run.model, run.train, run.data, run.search) == (*written.values(), DecodeConfig())


def test_a_group_that_is_invalid_leaves_the_others_usable(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model": {}, "data": {"unheard_of": 3}}), encoding="utf-8")
    run = SavedRun.open(tmp_path)
    assert run.model == ModelConfig()
    with pytest.raises(ValueError, match="'data' options of this version"):
        _ = run.data


def read(tmp_path, change) -> tuple:
    contents = {"model": dataclasses.asdict(BIG), "decode": dataclasses.asdict(DecodeConfig(beam_size=2))}
    change(contents)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(contents), encoding="utf-8")
    run = SavedRun.open(tmp_path)
    return run.model, run.search


def test_what_a_file_lacks_has_its_default(tmp_path):
    """A run of a version that had fewer options can be read."""
    expected = dataclasses.replace(BIG, d_ff=ModelConfig().d_ff)
    assert read(tmp_path, lambda contents: contents["model"].pop("d_ff"))[0] == expected
    assert read(tmp_path, lambda contents: contents.pop("decode")) == (BIG, DecodeConfig())


def test_an_unknown_option_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"'decode' options of this version .*config\.json\. Unknown: \['width'\]"):
        read(tmp_path, lambda contents: contents["decode"].update(width=4))


def test_an_invalid_value_in_a_file_is_refused_as_anywhere_else(tmp_path):
    with pytest.raises(ValueError, match="d_model=511"):
        read(tmp_path, lambda contents: contents["model"].update(d_model=511))


def test_a_value_of_another_type_is_refused_by_name_in_every_field():
    """As a hand-written or hostile file may have it. Whole numbers do for the others: --dropout=0."""
    for group in GROUPS.values():
        for field in dataclasses.fields(group):
            wrong = {
                int: ("4", 4.0, True, None, [4]), float: ("0.5", True, None, {}), bool: (1, "true", None),
                str: (0, None, ["x"])
            }  # fmt: skip
            for value in wrong[field.type]:
                with pytest.raises(ValueError, match=rf"^Expected (a|true|text).* Received: {field.name}="):
                    group(**{field.name: value})
    assert ModelConfig(dropout=0).dropout == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_a_number_that_is_not_finite_is_refused_in_every_field(value):
    for group in GROUPS.values():
        for field in dataclasses.fields(group):
            if field.type is float:
                with pytest.raises(ValueError, match=f"Expected a finite number. Received: {field.name}="):
                    group(**{field.name: value})


def test_a_whole_number_that_no_machine_has_room_for_is_refused_in_every_field():
    for group in GROUPS.values():
        for field in dataclasses.fields(group):
            if field.type is int:
                with pytest.raises(ValueError, match=f"^Expected .*at most .* Received: {field.name}={2**40}"):
                    group(**{field.name: 2**40})
    for name in ("encoder_layers", "decoder_layers", "vocab_size", "d_model"):
        with pytest.raises(ValueError, match=f"^Expected .*at most .* Received: {name}=100000000"):
            ModelConfig(**{name: 10**8})


@pytest.mark.parametrize(("group", "limits"), [
    (ModelConfig, {"vocab_size": 2**24, "encoder_layers": 200, "decoder_layers": 200, "d_model": 2**16, "d_ff": 2**20}),
    (ModelConfig,
     {"num_heads": 2**12, "d_k": 2**16, "d_v": 2**16, "learned_positions": 2**20, "attention_window": 2**16}),
    (RnnConfig,
     {"vocab_size": 2**24, "source_vocab_size": 2**24, "d_model": 2**16, "d_embedding": 2**16, "encoder_layers": 200}),
    (DecodeConfig, {"beam_size": 2**12, "extra_length": 2**16, "max_input": 2**16}),
    (TrainConfig, {"train_steps": 2**31 - 1}),
])  # fmt: skip
def test_the_largest_value_of_an_option_is_accepted_and_the_next_is_not(group, limits):
    group(**limits)
    for name, limit in limits.items():
        with pytest.raises(ValueError, match=f"^Expected .*at most {limit:,}. Received: {name}={limit + 1}"):
            group(**{name: limit + 1})


def test_a_message_stays_short_whatever_the_value():
    for value in ("x" * 10**6, [[[[[[[[1]]]]]]]] * 10**5):
        with pytest.raises(ValueError) as raised:
            ModelConfig(d_model=value)
        assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[" * 10**5, "is damaged"), (b'{"model": ' * 10**4, "is damaged"), (b"\xff", "is damaged"),
        (b"", "is damaged: it is empty. Restore a copy of it, or give another `model_dir`.$"),
        (b'{"model": ' + b"9" * 5000 + b"}", "is damaged"),
        (b"[1]", "a JSON object. Received: .1."), (b"null", "a JSON object"),
        (b'{"model": []}', "'model' in .* to be options"),
        (b'{"model": {"d_model": "512"}}', "not valid: .*d_model='512'"),
        (b" " * 2**20 + b"{}", "has more than 1,048,576 bytes, the maximum"),
        (b'{"model": {"dropout": NaN}}', "dropout=nan"),
    ],
)  # fmt: skip
def test_a_file_of_another_shape_is_refused_in_a_sentence(tmp_path, content, expected):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=expected) as raised:
        _ = SavedRun.open(tmp_path).model
    assert str(path) in str(raised.value) and len(str(raised.value)) < 1000


def test_options_need_neither_tensorflow_nor_keras():
    program = "import sys, t2t_keras.config; print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [(1, 320), (50, 320), (100, 448), (8_000, 4_024), (29_000, 7_664), (100_000, 14_232), (676_000, 37_000)]
    + [(4_500_000, 37_000)],
)
def test_a_vocabulary_grows_with_the_root_of_the_text_up_to_the_paper_s(pairs, expected):
    assert config.vocabulary_size(pairs) == expected


@pytest.mark.parametrize("options", [ModelConfig, RnnConfig, BertConfig, ClassifierConfig])
def test_a_vocabulary_has_more_than_the_special_ids_or_the_text_decides(options):
    assert options(vocab_size=0).vocab_size == 0 and options(vocab_size=5).vocab_size == 5
    with pytest.raises(ValueError, match="`vocab_size` must be 0 or more than the 4 special ids"):
        options(vocab_size=4)


def test_a_long_option_of_noise_is_refused_in_linear_time():
    for augment in ("a" * 2**20, "upper:1" * 2**17):
        with pytest.raises(ValueError, match="`augment` must be"):
            TrainConfig(augment=augment)
