"""Exports for transformers: what comes in goes out the same, logits of NumPy, ids, and what is refused."""

import json
import pathlib
import subprocess
import sys
import unicodedata

import marian_run
import numpy as np
import programs
import pytest
import safetensors.numpy
import sentencepiece
import stand_in
import tensorflow as tf
import transformers_models as models

import t2t_keras
from t2t_keras.config import BOS, EOS, DataConfig, TrainConfig
from t2t_keras.decoding import loading
from t2t_keras.interop import marian_export, model_card
from t2t_keras.runs import data_folder, run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files
from t2t_keras.text import piece_file, vocabulary

ROOT = pathlib.Path(__file__).parent.parent
STEP_0 = "checkpoints/step-000000000.npz"
FILES = {
    "README.md", "config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm",
    "tokenizer_config.json",
}  # fmt: skip
SAME = ("vocab.json", "target_vocab.json", "source.spm", "target.spm")


def parsed(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


# In and out again.


@pytest.fixture(scope="module", params=models.MARIAN)
def in_and_out(request, tmp_path_factory):
    """A Marian model, the run that it becomes, what that is exported to, and the run that becomes of it."""
    top = tmp_path_factory.mktemp("in_and_out")
    folder = models.make(top / "model", **models.MARIAN[request.param])
    t2t_keras.import_marian(folder, top / "run")
    t2t_keras.export_marian(top / "run", top / "out")
    t2t_keras.import_marian(top / "out", top / "again")
    return request.param, folder, top / "run", top / "out", top / "again"


@pytest.mark.parametrize("shape", [
    {"tied": False, "options": {"decoder_start_token_id": 3}},
    {"separate": True, "shared": True, "options": {"decoder_vocab_size": 58}},  # Two lists with one matrix.
])  # fmt: skip
def test_two_matrices_of_shared_weights_are_the_same_after_out_and_in(tmp_path, shape):
    """Story: the row of the start token of the source's matrix was another one."""
    folder = models.make(tmp_path / "model", **shape)
    t2t_keras.import_marian(folder, tmp_path / "run")
    t2t_keras.export_marian(tmp_path / "run", tmp_path / "out")
    t2t_keras.import_marian(tmp_path / "out", tmp_path / "again")
    with np.load(tmp_path / "run" / STEP_0) as expected, np.load(tmp_path / "again" / STEP_0) as arrays:
        assert "model/transformer/source_embedding/matrix" in expected.files
        assert all(expected[name].tobytes() == arrays[name].tobytes() for name in expected.files)


def test_the_run_is_the_same_after_out_and_in(in_and_out):
    _, _, run, _, again = in_and_out
    for name in (files.SUBWORDS, files.SOURCE_SUBWORDS):
        assert (run / name).read_bytes() == (again / name).read_bytes()
    written, found = (parsed(each / "config.json") for each in (run, again))
    assert all(written[group] == found[group] for group in ("model", "decode", "data", "subwords", "source_subwords"))
    with np.load(run / STEP_0) as expected, np.load(again / STEP_0) as arrays:
        assert expected.files == arrays.files
        for name in expected.files:
            assert expected[name].tobytes() == arrays[name].tobytes(), name


def test_the_model_is_the_same_after_in_and_out(in_and_out):
    """But for the bias of forbidden ids, which is 0, the greatest length, and the id of <pad> in a larger source."""
    shape, folder, _, out, _ = in_and_out
    if shape in ("ids without a piece", "not scaled, separate"):
        pytest.skip("ids without a piece get one, and the logits keep the only matrix that is not scaled")
    before, after = (safetensors.numpy.load_file(each / "model.safetensors") for each in (folder, out))
    for [index] in parsed(folder / "generation_config.json")["bad_words_ids"]:
        before["final_logits_bias"][0, index] = 0
    assert before.keys() == after.keys()
    old, new = (parsed(each / "vocab.json") for each in (folder, out))
    assert sorted(old, key=old.get) == sorted(new, key=new.get) or shape in ("separate", "untied") and old != new
    rows = "model.encoder.embed_tokens.weight"
    if rows in before:
        before[rows], after[rows] = before[rows][[*old.values()]], after[rows][[new[piece] for piece in old]]
    for name, array in before.items():
        assert after[name].tobytes() == array.astype(np.float32).tobytes(), name
    assert {path.name for path in out.iterdir()} == {path.name for path in folder.iterdir()} | {"README.md"}
    for path in folder.glob("*.spm"):
        assert path.read_bytes() == (out / path.name).read_bytes()
    for path in folder.glob("*vocab.json"):
        if path.name != "vocab.json" or old == new:
            assert list(parsed(path).items()) == list(parsed(out / path.name).items())
    for path in folder.glob("*config.json"):
        expected = parsed(path) | {"max_length": 64} if path.name == "generation_config.json" else parsed(path)
        found = parsed(out / path.name)
        assert {name: found.get(name) for name in expected} == expected


# A run of this project's own.


@pytest.fixture(scope="module", params=marian_run.SHAPES)
def exported(request, tmp_path_factory):
    """A run, and what it is exported to."""
    top = tmp_path_factory.mktemp("exported")
    run = marian_run.make(top / "run", steps=(1, 2), **marian_run.SHAPES[request.param])
    t2t_keras.export_marian(run, top / "out")
    return loading.load(run), top / "out"


def marian_ids(folder: pathlib.Path, side: str) -> list[int]:
    """Marian's id for each of ours; that of the start token is the padding's, and padding has -1."""
    names = {
        "source": "vocab.json",
        "target": "target_vocab.json" if (folder / "target_vocab.json").exists() else "vocab.json",
    }
    ids = parsed(folder / names[side])
    others = [index for piece, index in ids.items() if piece not in ("<pad>", "<unk>", "</s>")]
    return [-1, ids["<unk>"], ids["<pad>"], ids["</s>"], *others]


def test_padding_has_one_id_on_both_sides(exported):
    """Story: of a larger source it had two, and transformers left the target's in each translation as <pad>."""
    _, folder = exported
    names = ["vocab.json", *["target_vocab.json"] * (folder / "target_vocab.json").exists()]
    found = {parsed(folder / name)["<pad>"] for name in names}
    assert found == {parsed(folder / "config.json")["pad_token_id"]}


def test_logits_are_those_of_the_run(exported):
    translator, folder = exported
    config = translator.model.config
    sizes = config.source_vocab_size or config.vocab_size, config.vocab_size
    source_ids, target_ids = (marian_ids(folder, side) for side in ("source", "target"))
    assert parsed(folder / "config.json")["pad_token_id"] < min(sizes) - 1  # A row of both embeddings, for PyTorch.
    draw = np.random.default_rng(1)
    for length in (1, 7, 12):
        source, target = (draw.integers(EOS + 1, size, length).tolist() for size in sizes)
        found = models.logits(
            folder, [source_ids[index] for index in [*source, EOS]], [target_ids[index] for index in [BOS, *target]]
        )
        logits, _ = translator.model.decode(
            tf.constant([[BOS, *target]]), translator.model.encode(tf.constant([[*source, EOS]]))
        )
        expected, bias = logits[0].numpy()[:, BOS + 1 :], translator.model.embedding.bias
        np.testing.assert_allclose(found[:, target_ids[BOS + 1 :]], expected, atol=3e-5)
        assert np.abs(expected).max() > 3 and (bias is None or np.abs(bias).max() > 0.5)


def test_ids_and_text_are_those_of_the_run(exported):
    """Also of text with ▁, which SentencePiece takes for a space. What looks like a tag is one for Marian."""
    translator, folder = exported
    lines = [line for line in [*models.nasty_lines(600), *stand_in.sentences(50)] if not line.startswith(">>")]
    # Blank text has no sub-words in a run; SentencePiece has some for format characters.
    lines = [line for line in lines if not all(c.isspace() or unicodedata.category(c) == "Cf" for c in line)]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "target.spm"))
    for side, tokenizer in (("source", translator.source_tokenizer), ("target", translator.tokenizer)):
        ids, own = marian_ids(folder, side), tokenizer.tokenize(tf.constant(lines))
        received = [[ids[index] for index in row] for row in own.to_list()]
        assert received == [models.ids_of(folder, line, side) for line in lines]
    pieces = translator.tokenizer.pieces
    written = [text.decode("utf-8", "replace") for text in translator.tokenizer.detokenize(own).numpy()]
    found = [processor.decode_pieces([pieces[index] for index in row if index > EOS]) for row in own.to_list()]
    assert found == written and any("▁" in text and "\ue0f0" in text for text in written)


def test_an_export_that_is_imported_has_the_ids_and_weights_of_the_run(exported, tmp_path):
    """But for the padding's row, which is the start token's, and where another ε of normalization is made up for."""
    translator, folder = exported
    other = translator.model.config.norm_epsilon != marian_run.SMALL.norm_epsilon
    t2t_keras.import_marian(folder, tmp_path / "run")
    with np.load(tmp_path / "run" / STEP_0) as arrays:
        for weight in translator.model.weights:
            firsts = {"embedding/matrix": BOS, "logits_matrix": EOS, "logits_bias": EOS}
            first = next((row for name, row in firsts.items() if weight.path.endswith(name)), 0)
            assert other or np.array_equal(arrays[f"model/{weight.path}"][first:], weight.numpy()[first:]), weight.path
    again = vocabulary.load_sides(*SavedRun.open(tmp_path / "run").subwords())
    lines = tf.constant([line for line in models.nasty_lines(300) if not line.startswith(">>")])
    for before, after in ((translator.tokenizer, again), (translator.source_tokenizer, again.source)):
        assert before.pieces[EOS:] == after.pieces[EOS:]
        assert before.tokenize(lines).to_list() == after.tokenize(lines).to_list()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return marian_run.make(tmp_path_factory.mktemp("run") / "run", steps=(1, 2, 3))


def test_the_checkpoint_may_be_chosen(run, tmp_path):
    found = {}
    for which in ("average", "latest", 2):
        t2t_keras.export_marian(run, tmp_path / str(which), which)
        found[which] = safetensors.numpy.load_file(tmp_path / str(which) / "model.safetensors")[
            "model.encoder.layers.0.fc1.bias"
        ]
    arrays = [
        np.load(run / f"checkpoints/step-00000000{step}.npz")["model/transformer/encoder_0/feed_forward/inner/bias"]
        for step in (1, 2, 3)
    ]
    np.testing.assert_allclose(found["average"], np.mean(arrays, axis=0), atol=1e-6)
    assert np.array_equal(found["latest"], arrays[2]) and np.array_equal(found[2], arrays[1])


def test_the_search_is_that_of_the_run_and_of_the_options_given(run, tmp_path, messages):
    t2t_keras.export_marian(run, tmp_path / "own")
    assert not [message for message in messages if "ignored" in message]
    groups = {"diverse_groups": 2, "diversity": 0.7}
    t2t_keras.export_marian(
        run, tmp_path / "given", beam_size=6, alpha=1 / 3, no_repeat_ngram=3, max_input=30, extra_length=7, **groups
    )
    assert "Options of the search without a counterpart are ignored: diverse_groups." in "\n".join(messages)
    names = ("num_beams", "length_penalty", "no_repeat_ngram_size", "max_length", "bad_words_ids", "renormalize_logits")
    own, given = (parsed(tmp_path / name / "generation_config.json") for name in ("own", "given"))
    pad = stand_in.VOCAB_SIZE - 2
    assert [own[name] for name in names] == [3, 0.4, 0, 40, [[pad]], True]
    assert [given[name] for name in names] == [6, 0.266667, 3, 30, [[pad]], False]
    assert parsed(tmp_path / "given" / "config.json")["max_position_embeddings"] == 30
    for name, alpha, extra, longest in (("own", "0.5", 50, 40), ("given", "0.333333", 7, 30)):
        card = (tmp_path / name / "README.md").read_text()
        assert parsed(tmp_path / name / "tokenizer_config.json")["model_max_length"] == longest
        assert f"/ 6)^{alpha}," in card and f"source + {extra} sub-words" in card and f"at most {longest} here" in card


def test_one_matrix_may_have_two_lists_of_sub_words(tmp_path):
    """As in runs whose sub-words were given for each side."""
    run = marian_run.make(tmp_path / "run")
    own = marian_run.learned("nmt_nfkc", stand_in.VOCAB_SIZE)
    (tmp_path / "own").write_bytes(own)
    SavedRun.write(run, SavedRun.open(run).options, run / "subwords.model", None, tmp_path / "own")
    t2t_keras.export_marian(run, tmp_path / "out")
    assert parsed(tmp_path / "out" / "tokenizer_config.json")["separate_vocabs"]
    for side, model in (("source", own), ("target", (run / "subwords.model").read_bytes())):
        ids, lines = marian_ids(tmp_path / "out", side), ["½ ﬁ", "one"]
        found = [[ids[index] for index in row] for row in vocabulary.load(model).tokenize(tf.constant(lines)).to_list()]
        assert found == [models.ids_of(tmp_path / "out", line, side) for line in lines]
    t2t_keras.import_marian(tmp_path / "out", tmp_path / "again")
    assert SavedRun.open(tmp_path / "again").options.source_vocab_size == 0


def test_the_files_are_as_transformers_wants_them(run, tmp_path, monkeypatch):
    """Text that looks like a special token stays text, and spaces stay. The folder may be the current one."""
    monkeypatch.chdir(tmp_path)
    t2t_keras.export_marian(run, ".")
    tokenizer = parsed(tmp_path / "tokenizer_config.json")
    found = (tokenizer["split_special_tokens"], tokenizer["clean_up_tokenization_spaces"], tokenizer["separate_vocabs"])
    assert found == (True, False, False)
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}
    for path in tmp_path.glob("*.json"):
        assert path.read_text() == json.dumps(parsed(path), indent=2) + "\n"  # For people too.
    assert f"# {tmp_path.name}\n" in (tmp_path / "README.md").read_text()


# The card.


def card_of(run, out: pathlib.Path, **options) -> str:
    t2t_keras.export_marian(run, out, **options)
    return (out / "README.md").read_text()


def change(run, **changes) -> None:
    """Changes what a run's folder says of it."""
    (run / "config.json").write_text(json.dumps(parsed(run / "config.json") | changes))


def test_the_card_says_what_the_run_knows_and_no_path(run, tmp_path):
    scores = {
        "bleu": 31.25, "signature": "nrefs:1|tok:13a", "chrf": 50.0, "chrf_signature": "nrefs:1|nc:6",
        "checkpoint": "average",
    }  # fmt: skip
    (tmp_path / "test_2016.json").write_text(json.dumps(scores))
    (tmp_path / "test_2017.json").write_text(
        json.dumps(scores | {"bleu": 20.5, "checkpoint": "best", "dtype": "bfloat16", "int8": True})
    )
    card = card_of(run, tmp_path / "mine", scores=[tmp_path / "test_2016.json", tmp_path / "test_2017.json"])
    head = card.split("---\n")[1]
    assert head.startswith('language:\n- "en"\n- "de"\nlibrary_name: transformers\npipeline_tag: translation\n')
    assert "that translates en to de:" in card and "Trained with t2t_keras for 3 updates." in card
    assert "base_model" not in card
    assert "license" not in head and "Whoever publishes the model chooses one" in card
    assert "- training: some.en,more.en and some.de,more.de\n- validation: other.en and other.de\n" in card
    assert "/private" not in card and str(tmp_path) not in card
    assert (
        "| test_2016 | BLEU | 31.25 | average | nrefs:1\\|tok:13a |\n"
        "| test_2016 | chrF2 | 50.00 | average | nrefs:1\\|nc:6 |"
    ) in card
    assert "| test_2017 | BLEU | 20.50 | best, bfloat16, int8 |" in card
    options = SavedRun.open(run).options
    assert f"2 + 1 layers, d_model 16, {options.model.num_weights:,} weights" in card
    assert f"of at most the first {options.train.valid_sentences} validation sentences: 12.3" in card
    assert "12.35 after 1 update." in card or "12.34 after 1 update." in card
    assert "--d_model=16" in card and "--train_source=some.en,more.en" in card and "average, updates 1, 2, 3" in card
    assert parsed(tmp_path / "mine" / "tokenizer_config.json")["target_lang"] == "de"


@pytest.mark.parametrize("origin", ["parent", "encoder_from"])
def test_the_card_of_a_child_names_its_parent(run, tmp_path, origin):
    train = TrainConfig(**{origin: str(run)}, parent_checkpoint="2")
    child = marian_run.make(tmp_path / "child", groups={"train": train})
    card = card_of(child, tmp_path / "out")
    digest = parsed(run / "checkpoints/step-000000002.json")["sha256"]
    assert f"from those of the run run (step-000000002.npz: SHA-256 {digest})" in card and f"--{origin}=run " in card


@pytest.mark.parametrize(
    ("source", "base"), [("/models/opus", ""), ("the hub's Some/opus-mt", 'base_model: "Some/opus-mt"\n')]
)
def test_the_card_of_an_import_names_what_was_imported(tmp_path, source, base):
    t2t_keras.import_marian(models.make(tmp_path / "opus"), tmp_path / "run")
    sources = parsed(tmp_path / "run" / "config.json")["sources"]
    change(tmp_path / "run", sources=dict.fromkeys(sources, f"import of {source}"))
    card = card_of(tmp_path / "run", tmp_path / "out")
    name = base[13:-2] or "opus"
    assert f"Imported from {name} into" in card and f"--from={name} --model_dir=runs/model\n" in card
    assert ("base_model" in card) == bool(base) and base in card
    assert "best BLEU" not in card  # It has not been trained.


def test_the_card_of_a_fine_tuned_import_names_its_base_model_and_its_own_command(run, tmp_path):
    train = TrainConfig(parent=str(run), label_smoothing=0.2, best_metric="loss")
    child = marian_run.make(tmp_path / "child", groups={"train": train})
    given = dict.fromkeys(("label_smoothing", "dropout"), "given")
    change(child, sources={"d_model": "parent: parent: import of the hub's Some/opus-mt", **given})
    card = card_of(child, tmp_path / "out")
    assert 'base_model: "Some/opus-mt"\n' in card and "Imported from" not in card
    assert "--parent=run" in card and "--label_smoothing=0.2" in card and "--d_model" not in card
    assert "--dropout=0.1" in card
    assert "best BLEU" not in card, "12.345 is the best loss"
    assert "--warmup_steps" not in card, "a default that nobody has given"


@pytest.mark.parametrize("parent", ["x", {}, {"checkpoints": {"a": 3, "b": {}}}])
def test_a_parent_without_hashes_is_named_alone(run, tmp_path, parent):
    child = marian_run.make(tmp_path / "child", groups={"train": TrainConfig(parent=str(run))})
    change(child, parent=parent)
    assert "Its weights started from those of the run run.\n" in card_of(child, tmp_path / "out")


def test_the_command_has_what_differs_from_the_defaults_and_holds_elsewhere(tmp_path):
    """Without an option that was given its default, and without the address of a machine."""
    train = TrainConfig(data_service="grpc://10.0.0.1:5050", warmup_steps=77)
    run = marian_run.make(tmp_path / "run", groups={"train": train})
    change(run, sources={"dropout": "given", "warmup_steps": "given"})
    card = card_of(run, tmp_path / "out")
    assert "--warmup_steps=77" in card and "--dropout" not in card and "10.0.0.1" not in card


def test_a_card_says_what_is_known_of_training_and_scores_and_no_more(run):
    """As of checkpoints of other programs."""
    saved = SavedRun.open(run)
    for state in (
        {}, {"best": "12.5", "best_step": 1}, {"best": 12.5, "best_step": "1"}, {"best": 12.5, "best_step": 0},
    ):  # fmt: skip
        card = model_card.card("mine", saved, saved.data, saved.search, "average", state, [])
        assert "Trained with t2t_keras.\n" in card and "## Scores\n\nNone were given.\n\n" in card
    state = {"step": 3000, "best": 12.5, "best_step": 2000}
    card = model_card.card("mine", saved, saved.data, saved.search, "average", state, [])
    assert "for 3,000 updates." in card and "validation sentences: 12.50 after 2,000 updates." in card


@pytest.mark.parametrize(("number", "shown"), [(7, 7), (0, 500), (-7, 500), ("<b>", 500)])
def test_a_card_says_of_how_many_sentences_the_best_bleu_is(run, number, shown):
    """Those of the validations that chose it: a later start may have had another number, and been stopped at once. What
    a state of another program has in its place is not shown.
    """
    saved, state = SavedRun.open(run), {"step": 9, "best": 12.5, "best_step": 5, "valid_sentences": number}
    assert saved.train.valid_sentences == 500
    card = model_card.card("mine", saved, saved.data, saved.search, "average", state, [])
    assert f"of at most the first {shown} validation sentences: 12.50" in card


def test_a_card_names_a_data_set_or_says_that_it_knows_none(run):
    saved = SavedRun.open(run)
    cards = [
        model_card.card("mine", saved, data, saved.search, "average", {}, [])
        for data in (DataConfig(dataset="builtin", train_split="first", valid_split="second"), DataConfig())
    ]
    assert "## Data\n\n- training: builtin, first\n- validation: builtin, second\n" in cards[0]
    assert "## Data\n\nThe run does not name its data.\n" in cards[1]
    assert "that translates one language to another:" in cards[1]


def test_a_hostile_name_is_no_markup(tmp_path):
    hostile = "x```\n---\nlicense: mit\n<script>.en"
    data = DataConfig(train_source=hostile, train_target="y.de", source_language="en: x", target_language="de")
    run = marian_run.make(tmp_path / "run", groups={"data": data})
    card = card_of(run, tmp_path / "<script>")
    assert "<script>" not in "".join(card.split("```")[::2]) and card.count("```") == 4 and "\nlicense: mit" not in card
    assert "language:" not in card


def test_the_card_names_the_tags_of_sentences(tmp_path):
    data = DataConfig(train_source="a.en,b.en,c.en", train_target="a.fr,b.de,c.fr", source_tag="<2fr>,<2de>,<2fr>")
    card = card_of(marian_run.make(tmp_path / "run", groups={"data": data}), tmp_path / "out")
    assert "A sentence begins with its tag: `<2de>`, `<2fr>`." in card and "--source_tag='<2fr>,<2de>,<2fr>'" in card


@pytest.mark.parametrize(("data", "expected"), [
    ({"dataset": "builtin"}, ("en", "de")),
    ({"train_source": "a/x.en.gz,b/y.en@2", "train_target": "a/x.fr.gz,b/y.fr@2"}, ("en", "fr")),
    ({"train_source": "x.en,y.de", "train_target": "x.de,y.en"}, ()),
    ({"train_source": "x.src", "train_target": "x.tgt"}, ()),
    ({"train_source": "x.src.gz", "train_target": "x.de"}, ()),
    ({"train_source": "x.en", "train_target": "y.en"}, ()),
    ({"train_source": "x.en", "train_target": "x.de", "source_language": "fr"}, ()),
    ({"train_source": "x.en", "train_target": "x.de", "source_language": "de", "target_language": "fr"}, ("de", "fr")),
    ({}, ()),
])  # fmt: skip
def test_languages_are_those_of_the_options_or_of_the_names(data, expected):
    assert data_folder.languages(DataConfig(**data)) == expected


def test_the_data_of_a_resumed_run_are_those_of_its_folder(tmp_path):
    run = marian_run.make(tmp_path / "run", groups={"data": DataConfig()})
    options = {
        "train_source": ["my a.en 3 ab", "b.en 4 cd"], "train_target": ["a.de 3 ab", "b.de 4 cd"], "vocab_size": 330,
    }  # fmt: skip
    options["source_tag"] = "<1>,<2>,<3>"  # Of other names than these files have: one was a glob.
    (run / "data").mkdir()
    (run / "data" / "corpus.json").write_text(json.dumps({"options": options}))
    found = SavedRun.open(run).corpus
    assert (found.train_source, found.train_target, found.source_tag) == ("my a.en,b.en", "a.de,b.de", "")
    texts = {"train_source": "x", "train_target": "y"}
    assert SavedRun(run, {"data": texts}).corpus == DataConfig(**texts)
    assert SavedRun(run, {"data_dir": str(run / "data")}).corpus == DataConfig()


# What cannot be exported.


REFUSED = {
    "learned positions": ({"learned_positions": 40}, "learned_positions=0.*learned_positions=40"),
    "additive attention": ({"attention": "additive"}, "attention=scaled.*attention=additive"),
    "unscaled attention": ({"attention": "unscaled"}, "attention=scaled.*attention=unscaled"),
    "restricted attention": ({"attention_window": 4}, "attention_window=0.*attention_window=4"),
    "heads that are narrower": ({"d_k": 4}, "d_k = d_v = d_model / num_heads.*d_k=4"),
    "values that are narrower": ({"d_v": 4}, "d_v=4"),
    "epsilon": ({"norm_epsilon": 1e-3}, "norm_epsilon of at most 1e-05.*0.001"),
    "words": ({"subwords": "word"}, "byte-pair encoding"),
    "word pieces": ({"subwords": "wordpiece"}, "byte-pair encoding"),
    "other sub-words": ({"subwords": "bpe", "vocab_size": 331}, "the model's 331 sub-words. Received: 330"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_marian_has_no_model_for_is_refused_in_one_sentence(tmp_path, name):
    options, message = REFUSED[name]
    if "subwords" in options:
        options = {**options, "subwords": stand_in.subwords(options["subwords"])}
    run = marian_run.make(tmp_path / "run", **options)
    with pytest.raises(ValueError, match=message):
        t2t_keras.export_marian(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_matters_in_training_alone_does_not_hinder_an_export(tmp_path):
    rates = {"attention_dropout": 0.25, "activation_dropout": 0.5}
    run = marian_run.make(tmp_path / "run", **rates, word_dropout=0.1, simcut=3.0)
    t2t_keras.export_marian(run, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {name: config[name] for name in rates} == rates


def test_the_card_does_not_say_where_word_vectors_were(tmp_path):
    train = TrainConfig(embeddings=str(tmp_path / "secret" / "vectors.txt"))
    run = marian_run.make(tmp_path / "run", groups={"train": train})
    card = card_of(run, tmp_path / "out")
    assert "--embeddings=vectors.txt" in card and "secret" not in card


def test_another_architecture_is_refused(run, tmp_path):
    (tmp_path / "rnn").mkdir()
    SavedRun.write(tmp_path / "rnn", run_options.Options.default("rnn"), run / files.SUBWORDS, None)
    message = "Expected a Transformer for the format of Hugging Face. Received: a run with architecture=rnn."
    with pytest.raises(ValueError, match=message):
        t2t_keras.export_marian(tmp_path / "rnn", tmp_path / "out")


def test_placeholders_are_refused(tmp_path):
    lines = (side.encode() for pair in stand_in.pairs() for side in pair)
    options = {"sample": 10_000, "seed": 1, "normalization": "identity", "character_coverage": 1.0, "pattern": "x+"}
    run = marian_run.make(tmp_path / "run", subwords=vocabulary.learn("bpe", lines, stand_in.VOCAB_SIZE, **options))
    with pytest.raises(ValueError, match=r"without placeholders.*keep_patterns=x\+"):
        t2t_keras.export_marian(run, tmp_path / "out")


def test_a_folder_with_files_is_left_alone(run, tmp_path):
    (tmp_path / "mine").write_text("mine")
    for folder, said in ((tmp_path, "new or an empty"), (tmp_path / "mine", "`export_dir` must be a folder")):
        with pytest.raises(OSError, match=said):
            t2t_keras.export_marian(run, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_nothing_is_left_of_an_export_that_fails(run, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(pytest.importorskip("safetensors.numpy"), "save_file", fail)
    with pytest.raises(OSError, match="space"):
        t2t_keras.export_marian(run, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_without_safetensors_it_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ValueError, match=r"needs the package safetensors: pip install 't2t_keras\[interop\]'"):
        t2t_keras.export_marian(run, tmp_path / "out")


def test_what_a_stranger_wrote_is_no_markup_of_the_card():
    """Story: the signature of a score was an image, a link or a script of the card."""
    written = "![a](http://x) [b](y) [c][d] <script> | `z`"
    assert model_card._plain(written) == "?[a]?http:?/x) [b]?y) [c]?d] ?script? ? ?z?"
    scores = model_card.Scores("test", "best", [("BLEU", 1.0, f"nrefs:1|tok:13a {written}")])
    options = run_options.Options()
    row = model_card._table(options, {}, [scores]).splitlines()[-1]
    assert row.endswith("| nrefs:1\\|tok:13a ?[a]?http:?/x) [b]?y) [c]?d] ?script? \\| ?z? |")


OF_ANOTHER_SYSTEM = [
    f'{{"bleu": 3, "signature": "x", "{name}": "y"}}' for name in ("rerank_with", "mbr", "ensemble_mean")
]


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", '{"bleu": 3}', '{"bleu": "3", "signature": "x"}', "no JSON", *OF_ANOTHER_SYSTEM]
    + ['{"bleu": 3, "signature": "x", "terms": 4, "term_accuracy": 1.0, "decode_seconds": 2.0}']
    + ['{"bleu": 3, "signature": "x", "decode_seconds": 2.0, "beam_size": 16}']
    + ['{"bleu": 3, "signature": "x", "decode_seconds": 2.0, "no_repeat_ngram": 3}'],
)
def test_scores_need_their_signatures(run, tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match="x.json"):
        t2t_keras.export_marian(run, tmp_path / "out", scores=[tmp_path / "x.json"])
    assert not (tmp_path / "out").exists()


def tool(*arguments) -> subprocess.CompletedProcess:
    return programs.tool("export", "--format=huggingface", *arguments, modules=programs.WITHOUT_TENSORFLOW)


def test_the_program_needs_no_tensorflow(run, tmp_path):
    """And all its files may be read by others."""
    code = (
        "import sys; from tools import export; sys.argv = ['export', *sys.argv[1:]]\n"
        "try: export.main()\nfinally: assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    options = [
        "--format=huggingface", f"--model_dir={run}", f"--export_dir={tmp_path}/out", "--beam_size=2", "--checkpoint=1",
    ]  # fmt: skip
    result = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES | {"vocab.json"}
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1
    assert parsed(tmp_path / "out" / "generation_config.json")["num_beams"] == 2


@pytest.mark.parametrize(("options", "message"), [
    (["--dtype=bfloat16"], "--dtype and --int8 do not apply to --format=huggingface. Received: --dtype=bfloat16"),
    (["--int8"], "--int8=True"),
    (["--quantization=int8"], "--quantization has no effect without --format=ctranslate2 or --format=argos."),
    (["--format=savedmodel", "--scores=x"],
     "--scores has no effect without --format=huggingface. Received: --scores=['x']."),
    (["--model_dir={run},{run}"], "--format=huggingface takes one run. Received: 2."),
    (["--scores=/no/such.json"], "/no/such.json"),
    (["--checkpoint=7"], "No checkpoint for --checkpoint=7"),
    (["--diverse_groups=2", "--beam_size=3"], "divide"),
])  # fmt: skip
def test_what_the_program_cannot_do_is_reported_in_one_sentence(run, tmp_path, options, message):
    result = tool(f"--model_dir={run}", f"--export_dir={tmp_path}/out", *(option.format(run=run) for option in options))
    *_, last = result.stderr.splitlines()
    assert (
        result.returncode == 1 and last.startswith("Error: ") and message in last and "Traceback" not in result.stderr
    ), result.stderr
    assert not (tmp_path / "out").exists()


def test_a_tag_has_the_name_that_the_tokenizer_of_marian_looks_up():
    ids = marian_export._Side(("▁>>2de<<", "▁<2fr>", "▁>>"), b"").ids(5)
    assert ids == {"</s>": 0, "<unk>": 1, ">>2de<<": 2, "▁<2fr>": 3, "▁>>": 4, "<pad>": 5}


def test_sub_words_with_languages_are_refused():
    content = piece_file.HEAD + b'{"language": "", "pieces": [">>de<<"]}\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece_file, "unpack", lambda content: piece_file.Pieces((), b"", ""))
        message = "needs sub-words without languages. Received: those of a multilingual model"
        with pytest.raises(ValueError, match=message):
            marian_export._side(content)
