"""A new run starts from the weights and with the sub-words of another one, which its folder names."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import string
import types

import numpy as np
import pytest
import toy
from logged import logged

from t2t_keras.config import DataConfig
from t2t_keras.data import prepare
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint, registry
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import files
from t2t_keras.system.files import describe
from t2t_keras.text import vocabulary
from t2t_keras.training import devices, loop, parent, run
from t2t_keras.training.state import TrainState

GIVEN = {
    "dataset": "builtin", "builtin_pairs": 400, "vocab_size": 340, "encoder_layers": 1, "decoder_layers": 1,
    "d_model": 8, "d_ff": 16, "num_heads": 2, "d_k": 4, "d_v": 4, "train_steps": 4, "warmup_steps": 10,
    "batch_tokens": 400, "valid_steps": 4, "valid_sentences": 0, "best_metric": "loss", "checkpoint_steps": 2,
}  # fmt: skip
UNTRAINED = types.SimpleNamespace(train=TrainState)  # A trainer whose runs do not train.
CHILD = {
    "dataset": "builtin", "builtin_pairs": 500, "seed": 9, "train_steps": 2, "valid_steps": 2, "valid_sentences": 0,
    "best_metric": "loss", "batch_tokens": 400,
}  # fmt: skip


def trained(model_dir: pathlib.Path, **given) -> str:
    with logged() as said:
        run.train(Start.open(model_dir, given), strategy=devices.make_strategy())
    return "\n".join(said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("parent")
    trained(folder / "parent", **GIVEN)
    return folder


@pytest.mark.medium
def test_the_sub_words_of_the_parent_are_for_text_that_is_yet_to_be_prepared(folder, tmp_path):
    parent = {"parent": str(folder / "parent")}
    assert Start.open(tmp_path / "child", parent, str(folder / "data")).options.data == DataConfig()
    named = Start.open(tmp_path / "child", parent | {"dataset": "builtin"}).options.data
    assert named == DataConfig(dataset="builtin", subwords_file=str(folder / "parent" / files.SUBWORDS))
    own = Start.open(tmp_path / "child", parent | {"dataset": "builtin", "subwords_file": "own.model"}).options
    assert (own.data.subwords_file, own.sources["subwords_file"]) == ("own.model", "given")


def test_a_child_has_the_model_and_the_search_of_its_parent_unless_they_are_given(folder, tmp_path):
    path = tmp_path / "parent"
    shutil.copytree(folder / "parent", path)
    config = json.loads((path / "config.json").read_text())
    config["decode"] |= {"alpha": 1.5, "beam_size": 3}
    config["sources"] |= {"alpha": "command line", "d_ff": "import of a model"}
    (path / "config.json").write_text(json.dumps(config))
    child = Start.open(
        tmp_path / "child", {"parent": str(path), "beam_size": 2}, str(folder / "data"), {"beam_size": "flagfile a"}
    ).options
    assert (child.decode.alpha, child.decode.beam_size, child.model) == (1.5, 2, SavedRun.open(path).options.model)
    found = {name: child.sources[name] for name in ("alpha", "beam_size", "d_ff", "architecture")}
    expected = {"alpha": "parent: command line", "beam_size": "flagfile a", "d_ff": "parent: import of a model"}
    assert found == expected | {"architecture": "parent: default"}
    assert "seed" not in child.sources
    own = Start.open(tmp_path / "child", {"parent": str(path), "dataset": "builtin"}).options
    assert own.data.subwords_file == str(path / files.SUBWORDS)
    found = {own.sources[name] for name in ("subwords", "subwords_file")}
    assert found == {"parent: default"} and own.sources["dataset"] == "given"


def arrays(path: pathlib.Path) -> dict:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files if name != "state"}


def weights_of(model) -> dict:
    return {name: np.array(weight) for name, weight in checkpoint.model_variables(model).items()}


def averaged(model_dir: pathlib.Path) -> dict:
    archives = [np.load(path) for path in checkpoint.kept(model_dir)]
    return {
        name: np.mean([each[name] for each in archives], axis=0)
        for name in archives[0].files
        if name.startswith("model/")
    }


@pytest.mark.medium
def test_a_run_starts_from_the_average_of_its_parent_with_its_model_and_sub_words(folder, tmp_path, monkeypatch):
    found = {}

    def make_trainer(strategy, model, optimizer, *args, **others) -> types.SimpleNamespace:
        found.update(weights_of(model))
        assert np.array(optimizer.iterations) == 0
        return UNTRAINED

    monkeypatch.setattr(loop, "Trainer", make_trainer)
    said = trained(tmp_path / "child", parent=str(folder / "parent"), **CHILD)
    assert f"Starting from the average of {folder / 'parent'}: updates 2, 4." in said
    expected = averaged(folder / "parent")
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-7, err_msg=name)
    assert (tmp_path / "child/subwords.model").read_bytes() == (folder / "parent/subwords.model").read_bytes()
    options = SavedRun.open(tmp_path / "child").options
    assert options.model == SavedRun.open(folder / "parent").options.model and options.train.seed == 9
    assert options.train.parent == str(folder / "parent")


@pytest.mark.parametrize("which", ["latest", "2"])
def test_a_run_starts_from_the_chosen_checkpoint_of_its_parent_and_names_it(folder, tmp_path, monkeypatch, which):
    found = {}

    def make_trainer(strategy, model, *args, **others) -> types.SimpleNamespace:
        found.update(weights_of(model))
        return UNTRAINED

    monkeypatch.setattr(loop, "Trainer", make_trainer)
    trained(tmp_path / "child", parent=str(folder / "parent"), parent_checkpoint=which, **CHILD)
    path = checkpoint.path_of(folder / "parent", {"latest": 4, "2": 2}[which])
    with np.load(path) as archive:
        for name in found:
            np.testing.assert_array_equal(found[name], archive[name], err_msg=name)
    described = json.loads((tmp_path / "child/config.json").read_text())["parent"]
    assert described == {"checkpoints": {path.name: describe(path)}}


def with_other_sub_words(monkeypatch, folder: pathlib.Path, child: pathlib.Path, **given) -> types.SimpleNamespace:
    """A run that starts from the parent's weights with sub-words of its own, and is not trained.

    Returns:
        What was `said`; the weights of the `parent`, and those of the run before (`initial`) and after (`found`) its
        start; its `tokenizer`; and `row`, a function from an array of the parent and a sub-word to its row there, None
        if the parent has none.
    """
    seen, start = types.SimpleNamespace(parent=arrays(checkpoint.kept(folder / "parent")[-1])), parent.start

    def started(path, which, model, tokenizer, optimizer):
        seen.tokenizer, seen.initial = tokenizer, weights_of(model)
        start(path, which, model, tokenizer)
        seen.found = weights_of(model)

    monkeypatch.setattr(parent, "start", started)
    monkeypatch.setattr(loop, "Trainer", lambda *args, **others: UNTRAINED)
    given |= {"parent": str(folder / "parent"), "parent_checkpoint": "latest", "parent_subwords": False}
    seen.said = trained(child, **given, **CHILD | {"builtin_pairs": 2000})
    theirs = vocabulary.load((folder / "parent/subwords.model").read_bytes()).pieces
    seen.row = lambda name, piece: seen.parent[name][theirs.index(piece)] if piece in theirs else None
    return seen


def shared_rows(seen: types.SimpleNamespace, layer: str, pieces) -> int:
    """Checks that rows of the parent's sub-words are its rows, the others the initial ones. Returns how many are."""
    name, shared = f"model/transformer/{layer}/matrix", 0
    for index, piece in enumerate(pieces):
        row = seen.row("model/transformer/embedding/matrix", piece)
        shared += row is not None
        expected = seen.initial[name][index] if row is None else row
        np.testing.assert_array_equal(seen.found[name][index], expected, err_msg=piece)
    assert f"{shared:,} of {len(pieces)} sub-words in {layer} are the parent's" in seen.said
    return shared


@pytest.mark.medium
@pytest.mark.parametrize("vocab_size", [340, 352])
def test_with_other_sub_words_the_rows_of_those_that_both_have_are_copied(folder, tmp_path, monkeypatch, vocab_size):
    """Also where there are as many of them."""
    seen = with_other_sub_words(monkeypatch, folder, tmp_path / "child", vocab_size=vocab_size)
    assert len(seen.tokenizer.pieces) == vocab_size
    assert 260 < shared_rows(seen, "embedding", seen.tokenizer.pieces) < 340
    for name in seen.initial.keys() - {"model/transformer/embedding/matrix"}:
        np.testing.assert_array_equal(seen.found[name], seen.parent[name], err_msg=name)
    assert SavedRun.open(tmp_path / "child").options.model.vocab_size == vocab_size


def test_a_matrix_of_the_source_alone_has_the_rows_that_both_sides_of_the_parent_share(folder, tmp_path, monkeypatch):
    seen = with_other_sub_words(monkeypatch, folder, tmp_path / "child", source_vocab_size=330, vocab_size=332)
    assert "start at random:" not in seen.said
    shared_rows(seen, "source_embedding", seen.tokenizer.source.pieces)
    shared_rows(seen, "embedding", seen.tokenizer.pieces)


def of_letters(target: str, source: str) -> types.SimpleNamespace:
    """Sub-words of one letter each, the source's its own."""
    return types.SimpleNamespace(pieces=tuple(target), source=types.SimpleNamespace(pieces=tuple(source)))


def test_where_the_sub_words_of_the_source_alone_are_others_its_rows_are_those_of_the_parent_s_source(monkeypatch):
    """Of two with the same name, as <s> of NLLB-200, the first counts."""
    letters, trained = string.ascii_lowercase, []
    theirs, ours = of_letters(letters[:20], letters[6:25] + "g"), of_letters(letters[:20], letters[20:2:-1])

    def load(folder, which, other):
        toy.set_weights(other, seed=2)
        trained.append(other)
        return "other run", {}

    other_run = SavedRun(pathlib.Path("other"), {"model": dataclasses.asdict(toy.SMALL) | {"source_vocab_size": 20}})
    monkeypatch.setattr(SavedRun, "subwords", lambda run: (b"target", b"source"))
    monkeypatch.setattr(vocabulary, "load_sides", lambda target, source: theirs)
    monkeypatch.setattr(checkpoint, "load", load)
    model = Transformer(dataclasses.replace(toy.SMALL, source_vocab_size=18))
    toy.set_weights(model, seed=1)
    before = np.array(model.source_embedding_matrix)
    parent.start(other_run, "latest", model, ours)
    [other] = trained
    np.testing.assert_array_equal(model.embedding_matrix, other.embedding_matrix)
    found, known = np.array(model.source_embedding_matrix), np.array(other.source_embedding_matrix)
    for row, letter in enumerate(ours.source.pieces):
        expected = before[row] if letter in "def" else known[theirs.source.pieces.index(letter)]
        np.testing.assert_array_equal(found[row], expected, err_msg=letter)


def test_weights_that_only_one_of_the_two_has_are_warned_of(monkeypatch, messages):
    alike = types.SimpleNamespace(pieces=["a"], source=types.SimpleNamespace(pieces=["a"]))
    left = checkpoint.Left(unset=["new"], unused=[f"old {number}" for number in range(6)])
    monkeypatch.setattr(SavedRun, "subwords", lambda run: (b"",))
    monkeypatch.setattr(vocabulary, "load_sides", lambda content: alike)
    monkeypatch.setattr(checkpoint, "start", lambda *given: ("average", left))
    parent.start(SavedRun(pathlib.Path("other"), {}), "average", types.SimpleNamespace(weights=[1, 2, 3]), alike)
    assert messages == [
        "Starting from the average.",
        "2 of 3 weights come from the parent.",
        "1 weight(s) are not in the parent, and start at random: new.",
        "6 weight(s) of the parent are not used: old 0, old 1, old 2, old 3, old 4, ….",
    ]


def test_text_that_is_longer_than_the_parent_s_or_lacks_its_tags_is_warned_of(monkeypatch, messages):
    before = DataConfig(train_source="a", train_target="b", max_length=50, source_tag="<2de>")
    other = SavedRun(pathlib.Path("other"), {"data": dataclasses.asdict(before)})
    for max_length, positions in ((49, 64), (50, 64), (51, 64), (51, 0)):
        parent.warn_of_text(other, dataclasses.replace(before, max_length=max_length), positions)
    parent.warn_of_text(other, DataConfig(max_length=50), 64)
    assert messages == [
        "Positions beyond 50 were not trained in other. Received: max_length=51.",
        "other was trained with source_tag=<2de>. Received text without tags.",
    ]


@pytest.mark.medium
def test_with_the_optimizer_of_the_parent_its_averages_and_its_learning_rate_go_on(folder, tmp_path, monkeypatch):
    before, found, start = arrays(checkpoint.kept(folder / "parent")[0]), {}, parent.start

    def started(path, which, model, tokenizer, optimizer):
        start(path, which, model, tokenizer, optimizer)
        found.update(
            {name: np.array(variable) for name, variable in checkpoint._all_variables(model, optimizer).items()}
        )

    monkeypatch.setattr(parent, "start", started)
    given = {"parent": str(folder / "parent"), "parent_checkpoint": "2", "parent_optimizer": True, "warmup_steps": 10}
    said = trained(tmp_path / "child", **CHILD | given | {"train_steps": 1, "checkpoint_steps": 1})
    assert f"Starting from the checkpoint of {folder / 'parent'} with its optimizer: update 2." in said
    assert found.keys() == before.keys() and sum(name.startswith("optimizer/") for name in found) > len(found) / 2
    for name, array in before.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    after = arrays(checkpoint.kept(tmp_path / "child")[-1])
    assert (before["optimizer/adam/iteration"], after["optimizer/adam/iteration"]) == (2, 3)


def test_a_parent_without_an_optimizer_for_all_weights_is_refused_before_anything_is_written(folder, tmp_path):
    for name in ("frozen", "imported"):
        shutil.copytree(folder / "parent", tmp_path / name)
    config = json.loads((tmp_path / "frozen" / files.CONFIG).read_text())
    config["train"]["freeze"] = "encoder"
    (tmp_path / "frozen" / files.CONFIG).write_text(json.dumps(config))
    path = checkpoint.kept(tmp_path / "imported")[-1]
    with np.load(path) as archive:
        weights = {name: archive[name] for name in archive.files if not name.startswith("optimizer/")}
    np.savez(path, **weights)
    path.with_suffix(".json").write_text(json.dumps(describe(path)))
    for name, received in (("frozen", "trained with freeze=encoder"), ("imported", "whose checkpoint has none")):
        given = {"parent": str(tmp_path / name), "parent_checkpoint": "latest", "parent_optimizer": True}
        expected = f"Received: {tmp_path / name}, {received}. Leave out `parent_optimizer`."
        with pytest.raises(ValueError, match=re.escape(expected)):
            trained(tmp_path / "child", **CHILD | given)
    assert not (tmp_path / "child").exists()


def test_a_damaged_parent_is_refused_with_what_to_do_before_anything_is_written(folder, tmp_path):
    """Story: with its optimizer, the error was "File is not a zip file", and said nothing else."""
    shutil.copytree(folder / "parent", tmp_path / "parent")
    path = checkpoint.kept(tmp_path / "parent")[-1]
    size, digest = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    os.truncate(path, size - 1)
    given = {"parent": str(tmp_path / "parent"), "parent_checkpoint": "latest", "parent_optimizer": True}
    received = f"Expected: {size:,} bytes with SHA-256 {digest}. Received: {size - 1:,} bytes."
    expected = rf"{path} is damaged\. {received} Restore a copy of it, .*, or choose another checkpoint\.$"
    with pytest.raises(ValueError, match=expected):
        trained(tmp_path / "child", **CHILD | given)
    assert not (tmp_path / "child").exists()


def test_the_folder_names_the_checkpoints_that_the_weights_are_from(folder, tmp_path):
    """Story: a dry run had recorded those of a parent that then trained on, or of another parent."""
    child, prepared = tmp_path / "child", (tmp_path / "some", tmp_path / "index")
    child.mkdir()
    for path in prepared:
        path.write_text("")
    for which in ("2", "4"):
        given = {"parent": str(folder / "parent"), "parent_checkpoint": which}
        SavedRun.write(child, Start.open(child, given, str(folder / "data")).options, *prepared)
        recorded = json.loads((child / "config.json").read_text())["parent"]
        assert recorded == {"checkpoints": checkpoint.identity(folder / "parent", which)}


def test_a_run_without_a_checkpoint_keeps_its_parent_and_the_model_of_it(folder, tmp_path):
    """Story: after a dry run with another parent, the weights were of one run and the activation of another."""
    parents, prepared = [folder / "parent", tmp_path / "other"], (tmp_path / "some", tmp_path / "index")
    shutil.copytree(*parents)
    for path in prepared:
        path.write_text("")
    for child, given in ((tmp_path / "child", {"parent": str(parents[0])}), (tmp_path / "alone", {})):
        child.mkdir()
        SavedRun.write(child, Start.open(child, given, str(folder / "data")).options, *prepared)
    child, given = tmp_path / "child", {"parent": str(parents[0])}
    assert Start.open(child, {"parent": str(parents[1])}).options.train.parent == str(parents[1]), (
        "The same weights, in another place."
    )
    started = Start.open(child, given | {"train_steps": 7}).options
    found = (started.model, started.train.parent, started.train.train_steps)
    assert found == (SavedRun.open(parents[0]).options.model, str(parents[0]), 7)
    with pytest.raises(ValueError, match="Expected activation=relu, of the model in .*Received: activation=gelu"):
        Start.open(child, given | {"activation": "gelu"})
    for path in checkpoint.kept(parents[1]):  # Now it has other weights.
        shutil.copy(checkpoint.kept(parents[0])[0], path)
        path.with_suffix(".json").write_text(json.dumps(describe(path)))
    for damaged in ("x", ["checkpoints"], {"checkpoints": 3}):
        other = shutil.copytree(child, tmp_path / "damaged", dirs_exist_ok=True)
        config = json.loads((other / files.CONFIG).read_text())
        (other / files.CONFIG).write_text(json.dumps(config | {"parent": damaged}))
        with pytest.raises(ValueError, match="was started with parent=.*. Received: parent="):
            Start.open(other, {"parent": str(parents[1])})
    with pytest.raises(ValueError, match="Received: parent=none."):
        Start.open(child, {"parent": ""})
    for begun, wanted in ((child, str(parents[0])), (tmp_path / "alone", "none")):
        expected = f"{begun} was started with parent={wanted}. Received: parent={parents[1]}. Give another `model_dir`."
        with pytest.raises(ValueError, match=re.escape(expected)):
            Start.open(begun, {"parent": str(parents[1])})


@pytest.mark.medium
def test_frozen_parts_keep_the_weights_of_the_parent_and_have_no_optimizer(folder, tmp_path):
    """Resuming keeps them too, and other parts cannot be frozen then."""
    child = tmp_path / "child"
    said = trained(
        child, parent=str(folder / "parent"), parent_checkpoint="latest", freeze="embedding, encoder", **CHILD
    )
    parent, first = (arrays(checkpoint.kept(each)[-1]) for each in (folder / "parent", child))
    parts = {
        name: size for name, size in ((name, array.size) for name, array in first.items()) if name.startswith("model/")
    }
    decoder = {name: size for name, size in parts.items() if "/decoder_" in name}
    assert f"{sum(parts.values()):,} parameters, of which {sum(decoder.values()):,} are trained, float32" in said
    assert {name for name in first if name.startswith("optimizer/") and "embedding" in name} == set()
    trained(child, train_steps=3)
    second = arrays(checkpoint.kept(child)[-1])
    for name in parts:
        changed = [not np.array_equal(parent[name], first[name]), not np.array_equal(first[name], second[name])]
        assert changed == [name in decoder] * 2, name
    assert first.keys() == second.keys()
    with pytest.raises(ValueError, match=re.escape("Received: freeze=encoder (the run: embedding, encoder)")):
        trained(child, freeze="encoder")


@pytest.mark.medium
def test_the_folder_names_the_checkpoints_of_the_parent_and_keeps_them_when_it_is_resumed(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "make_train_step", toy.pretended_train_step([]))
    before, child = tmp_path / "parent", tmp_path / "child"
    shutil.copytree(folder / "parent", before)
    trained(child, parent=str(before), **CHILD)
    expected = {"checkpoints": {path.name: describe(path) for path in checkpoint.kept(before)}}
    assert json.loads((child / "config.json").read_text())["parent"] == expected and len(expected["checkpoints"]) == 2
    shutil.rmtree(before)  # What has started needs its parent no longer.
    (tmp_path / "link").symlink_to(before)
    again = CHILD | {"train_steps": 3}
    for command in ({"train_steps": 3}, again | {"parent": str(before)}):  # In short, and the same command again.
        Start.open(child, command).check()
    said = trained(child, **again, parent=str(tmp_path / "link"))
    assert "Resuming from update 2" in said and "Starting from the" not in said
    assert json.loads((child / "config.json").read_text())["parent"] == expected


@pytest.mark.parametrize(("given", "error", "expected"), [
    ({"parent": "nowhere"}, FileNotFoundError, "nowhere is not a model folder"),
    ({"architecture": "gru"}, ValueError, "Expected architecture=transformer, that of the run in"),
    ({"vocab_size": 400}, ValueError, "Expected vocab_size=340, that of"),
    ({"subwords": "wordpiece"}, ValueError, "Expected subwords=bpe, that of"),
    ({"d_ff": 32}, ValueError, "Expected d_ff=16, of the model in"),
    ({"num_heads": 4, "d_k": 2, "d_v": 2}, ValueError, "Expected num_heads=2, d_k=4, d_v=4, of the model in"),
    ({"activation": "gelu", "norm": "pre"}, ValueError, "Received: activation=gelu, norm=pre. Leave out what differs."),
    ({"subwords_file": ""}, ValueError, "Prepare the data with `subwords_file="),
    ({"parent_checkpoint": "3"}, FileNotFoundError, "No checkpoint for `parent_checkpoint=3` in"),
    ({"parent_checkpoint": "newest"}, ValueError,
     "one of average, best, latest, ema, or the number of an update. Received: newest"),
    ({"freeze": "embedding,heads"}, ValueError,
     "`freeze`: embedding, encoder, decoder, or names of their layers. Received: heads."),
    ({"freeze": "embedding,encoder,decoder"}, ValueError, "Expected a part of the model to train: one of"),
    ({"subwords_file": "nowhere.model"}, FileNotFoundError, "No such file of sub-words: 'nowhere.model'."),
])  # fmt: skip
def test_what_does_not_fit_the_parent_is_refused(folder, tmp_path, given, error, expected):
    with pytest.raises(error, match=re.escape(expected)):
        trained(tmp_path / "child", **({"parent": str(folder / "parent")} | CHILD | given))
    assert not checkpoint.kept(tmp_path / "child")


def test_parts_that_the_model_does_not_have_are_refused_before_data_are_prepared(folder, tmp_path):
    """Story: after hours of preparation, a misspelt `freeze` ended the run."""
    with pytest.raises(ValueError, match="Received: heads."):
        trained(tmp_path / "child", parent=str(folder / "parent"), **CHILD | {"freeze": "heads"})
    assert not (tmp_path / "child").exists()


@pytest.mark.parametrize(("name", "value"), [
    ("sinusoids", "tensor2tensor"), ("first_position", 2), ("attention", "additive"), ("activation", "gelu"),
    ("norm", "pre"), ("norm_epsilon", 1e-5), ("d_model", 16), ("d_v", 8),
])  # fmt: skip
def test_a_model_of_another_form_is_refused_before_data_are_prepared(folder, tmp_path, name, value):
    message = f"Expected {name}=.*, of the model in .* Received: {name}={value}. Leave out what differs."
    with pytest.raises(ValueError, match=message):
        Start.open(tmp_path / "child", {"parent": str(folder / "parent"), name: value})


def test_a_parent_is_not_added_to_a_run_that_has_started(folder, tmp_path):
    shutil.copytree(folder / "parent", tmp_path / "run")
    with pytest.raises(ValueError, match=re.escape(f"Received: parent={folder / 'parent'} (the run: )")):
        trained(tmp_path / "run", parent=str(folder / "parent"))


@pytest.mark.medium
def test_given_sub_words_are_a_part_of_what_a_folder_was_prepared_with(folder, tmp_path):
    file = folder / "parent/subwords.model"

    def prepared(to: str, subwords_file: pathlib.Path | str) -> None:
        data = DataConfig(dataset="builtin", builtin_pairs=300, subwords_file=str(subwords_file))
        prepare.Preparation(data, 340, 1, tmp_path / to, registry.task("translation")).run()

    prepared("data", file)
    assert (tmp_path / "data/subwords.model").read_bytes() == file.read_bytes()
    prepared("data", file)
    with pytest.raises(ValueError, match=re.escape("`subwords_file` was subwords.model")):
        prepared("data", "")
    prepared("data", tmp_path / "gone" / file.name)  # The folder has its sub-words.
    with pytest.raises(FileNotFoundError, match="other.model"):
        prepared("data", tmp_path / "other.model")
    (tmp_path / "damaged").write_bytes(b"not sub-words")
    with pytest.raises(ValueError, match="Expected a file of sub-words as `subwords_file`"):
        prepared("other", tmp_path / "damaged")
