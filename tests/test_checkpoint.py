"""A checkpoint is whole or not there, is what was written, and is refused with a sentence when it is not."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import zipfile

import keras
import numpy as np
import pytest
import toy
from numpy.lib import format as npy

from t2t_keras import config
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs import checkpoint
from t2t_keras.system import files
from t2t_keras.training import optimizer

SMALL = config.ModelConfig(
    vocab_size=6, encoder_layers=1, decoder_layers=1, d_model=2, d_ff=3, num_heads=1, d_k=2, d_v=1
)
STATE = {"step": 12, "position": [3, 4], "seconds": 1.5, "best": 27.25}


def new_model(**changes) -> Transformer:
    return Transformer(dataclasses.replace(SMALL, **changes))


def new_adam(model) -> keras.optimizers.Adam:
    adam = optimizer.adam(optimizer.TransformerSchedule(model.config.d_model, warmup_steps=4))
    adam.build(model.trainable_variables)
    return adam


def random_updates(model, adam, number: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(number):
        adam.apply([draw.normal(size=weight.shape).astype(np.float32) for weight in model.trainable_variables])


def arrays(model, adam=None) -> dict:
    """Weights by name, and the optimizer's numbers in its order."""
    numbers = {variable.path: variable.numpy().copy() for variable in model.trainable_variables}
    return numbers | {index: variable.numpy().copy() for index, variable in enumerate(adam.variables if adam else [])}


def assert_equal(received: dict, expected: dict) -> None:
    assert received.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(received[name], expected[name], err_msg=name)


@pytest.fixture
def trained():
    """A model and an Adam in the middle of a run: no slot is what it was at the start."""
    model = new_model()
    adam = new_adam(model)
    random_updates(model, adam, 3, seed=1)
    return model, adam


@pytest.fixture
def written(tmp_path, trained):
    """The file of `trained`'s checkpoint."""
    path = checkpoint.path_of(tmp_path, 12)
    checkpoint.write(path, *trained, STATE)
    return path


def describe(path) -> None:
    """Writes the manifest of an archive."""
    path.with_suffix(".json").write_text(json.dumps(files.describe(path)))


def rewrite(path, change) -> None:
    """Writes a checkpoint again, manifest and all, with the arrays that `change` returns for its own."""
    with np.load(path) as archive:
        contents = dict(archive)
    with path.open("wb") as file:
        np.savez(file, **change(contents))
    describe(path)


def read_state(path) -> dict:
    with np.load(path) as archive:
        return json.loads(str(archive["state"]))


def steps_of(folder, kind: str = checkpoint.STEP) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.kept(folder, kind)]


def names_in(folder) -> list[str]:
    return sorted(path.name for path in (folder / checkpoint.FOLDER).iterdir())


def as_best(folder, step: int) -> None:
    """The checkpoint of a step becomes that of the best validation as well."""
    best = checkpoint.path_of(folder, step, checkpoint.BEST)
    shutil.copyfile(checkpoint.path_of(folder, step), best)
    describe(best)


def test_model_and_optimizer_come_back_to_the_last_bit(trained, written):
    """Into new objects of the same process too.

    Story: Keras calls the second Adam of a process `adam_1` and its slots `adam_1/…`, so that going on in a process
    that had trained before was refused as "of another model".
    """
    model = new_model()
    adam = new_adam(model)
    assert checkpoint.restore(written, model, adam) == STATE
    assert_equal(arrays(model, adam), arrays(*trained))
    assert int(adam.iterations) == 3


def test_what_follows_a_restored_checkpoint_is_what_followed_it_before(trained, written):
    """Slots and the count of updates, which Adam's bias correction and the schedule use, are alive and not just
    equal.
    """
    model = new_model()
    adam = new_adam(model)
    random_updates(model, adam, 1, seed=9)
    checkpoint.restore(written, model, adam)
    for pair in (trained, (model, adam)):
        random_updates(*pair, 2, seed=2)
    assert_equal(arrays(model, adam), arrays(*trained))


def test_writing_changes_nothing(tmp_path, trained):
    before = arrays(*trained)
    checkpoint.write(tmp_path / "x.npz", *trained, STATE)
    assert_equal(arrays(*trained), before)


def test_the_state_keeps_what_json_has_no_number_for(tmp_path, trained):
    checkpoint.write(tmp_path / "x.npz", *trained, {**STATE, "best": float("-inf")})
    assert checkpoint.restore(tmp_path / "x.npz", *trained) == {**STATE, "best": float("-inf")}


def test_every_weight_is_in_a_checkpoint_once_and_no_dropout_seed(trained):
    model, _ = trained
    names = checkpoint.model_variables(model)
    assert sum(np.prod(variable.shape) for variable in names.values()) == sum(
        np.prod(w.shape) for w in model.trainable_variables
    )
    assert len(names) == len(model.trainable_variables)
    assert not any("seed" in name for name in names)


def test_weights_that_are_not_trained_are_in_a_checkpoint_too():
    """Moving averages, and layers that somebody has frozen."""
    model = keras.Sequential(
        [keras.Input([2]), keras.layers.Dense(3, name="dense"), keras.layers.BatchNormalization(name="norm")], name="m"
    )
    model.get_layer("dense").trainable = False
    assert sorted(checkpoint.model_variables(model)) == [
        "model/m/dense/bias", "model/m/dense/kernel",
        "model/m/norm/beta", "model/m/norm/gamma", "model/m/norm/moving_mean", "model/m/norm/moving_variance",
    ]  # fmt: skip


def test_two_weights_of_one_name_are_refused_before_one_is_lost():
    class Twins(keras.Layer):
        def __init__(self):
            super().__init__(name="twins")
            self.cells = [keras.layers.Dense(2, name="cell") for _ in range(2)]
            for cell in self.cells:
                cell.build([1, 2])

    with pytest.raises(ValueError, match="two of 'cell/kernel'"):
        checkpoint.model_variables(Twins())


@pytest.mark.parametrize("changes", [{"encoder_layers": 2}, {"learned_positions": 4}])
def test_a_model_with_other_weights_is_refused_by_name(written, changes):
    model = new_model(**changes)
    before = arrays(model)
    with pytest.raises(ValueError, match=f"{written.name} has no 'model/transformer/.*another model"):
        checkpoint.restore(written, model, new_adam(model))
    assert_equal(arrays(model), before)


@pytest.mark.parametrize("changes", [{"vocab_size": 7}, {"d_ff": 5}, {"d_model": 4}, {"num_heads": 3}])
def test_a_model_of_another_size_is_refused_with_both_shapes(written, changes):
    model = new_model(**changes)
    before = arrays(model)
    with pytest.raises(ValueError, match=rf"Expected 'model/transformer/.*\(\d.*{written.name}.*Received: .*\(\d"):
        checkpoint.restore(written, model, new_adam(model))
    assert_equal(arrays(model), before)


def test_fewer_layers_do_not_fit_either(tmp_path):
    """A checkpoint that holds more than the model is of another model too: half of it would be thrown away in
    silence.
    """
    deep = new_model(encoder_layers=2)
    checkpoint.write(checkpoint.path_of(tmp_path, 1), deep, new_adam(deep), STATE)
    model = new_model()
    with pytest.raises(ValueError, match="encoder_1"):
        checkpoint.restore(checkpoint.path_of(tmp_path, 1), model, new_adam(model))
    with pytest.raises(ValueError, match="encoder_1"):
        checkpoint.load(tmp_path, "latest", model)


def test_another_optimizer_is_refused(trained, written):
    model, _ = trained
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    sgd.build(model.trainable_variables)
    with pytest.raises(ValueError, match=f"{written.name} has no 'optimizer/"):
        checkpoint.restore(written, model, sgd)


def test_weights_of_another_type_are_refused(trained, written):
    rewrite(
        written,
        lambda contents: {name: a.astype("float16") if a.dtype == "float32" else a for name, a in contents.items()},
    )
    with pytest.raises(ValueError, match="float32.*float16"):
        checkpoint.restore(written, *trained)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99, 0.999])
def test_a_truncated_file_is_refused_by_name(trained, written, share):
    whole = written.read_bytes()
    written.write_bytes(whole[: int(share * len(whole))])
    before = arrays(*trained)
    with pytest.raises(ValueError, match=written.name):
        checkpoint.restore(written, *trained)
    assert_equal(arrays(*trained), before)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a checkpoint", b"\x93NUMPY\x01\x00", bytes(1000)])
def test_a_file_that_is_no_checkpoint_is_refused_by_name(trained, written, content):
    written.write_bytes(content)
    with pytest.raises(ValueError, match=written.name):
        checkpoint.restore(written, *trained)
    describe(written)  # Even if somebody vouches for it.
    with pytest.raises(checkpoint.DamagedError, match=written.name):
        checkpoint.restore(written, *trained)


@pytest.mark.parametrize("ending", ["npz", "json"])
def test_a_flipped_bit_is_refused_by_name(tmp_path, ending):
    """Wherever it is: in the weights, in NumPy's headers, in the state, in the archive's own tables, in the manifest.

    Story: only what the archive found wrong in the weights was told as a sentence. A bit in an array's header was
    NumPy's error without the file's name, one in the state was found after the weights had been set, and one in the
    archive's tables could be a NotImplementedError ("compression method") or a RuntimeError ("encrypted").
    """
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(3, name="dense")], name="small")
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    sgd.build(model.trainable_variables)
    path = tmp_path / "small.npz"
    checkpoint.write(path, model, sgd, STATE)
    path = path.with_suffix(f".{ending}")
    whole, before = path.read_bytes(), arrays(model, sgd)
    draw = np.random.default_rng(0)
    wrong = {}
    for place in range(0, len(whole), 7 if ending == "npz" else 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(damaged)
        try:
            checkpoint.restore(tmp_path / "small.npz", model, sgd)
            if json.loads(path.read_bytes()) != json.loads(whole):  # White space in a manifest may change.
                wrong[place] = "it was not found"
        except checkpoint.DamagedError as error:
            if "small." not in str(error):
                wrong[place] = f"an error that does not name the file: {error}"
        except Exception as error:
            wrong[place] = repr(error)
        assert_equal(arrays(model, sgd), before)
    assert not wrong


@pytest.mark.parametrize("place", [(np, "savez"), (os, "fsync")], ids=["half way", "at the end"])
def test_a_write_that_dies_leaves_the_file_of_that_name_whole(monkeypatch, trained, written, place):
    before = written.read_bytes()

    def dying(file, **contents):
        if contents:
            file.write(before[: len(before) // 2])
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*place, dying)
        random_updates(*trained, 1, seed=3)
        with pytest.raises(OSError, match="No space left"):
            checkpoint.write(written, *trained, {**STATE, "step": 13})
    assert written.read_bytes() == before
    assert checkpoint.kept(written.parent.parent) == [written]
    # And the next one is not disturbed by what the dead one left.
    checkpoint.write(written, *trained, {**STATE, "step": 13})
    assert read_state(written)["step"] == 13


def test_archive_manifest_and_names_are_on_disk_each_before_what_relies_on_it(monkeypatch, tmp_path, trained):
    happened = []
    synced, renamed = os.fsync, os.replace

    def sync(descriptor):
        path = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        happened.append(("on disk", path.with_name(re.sub(r"\.[0-9a-f]{16}\.tmp$", ".tmp", path.name))))
        synced(descriptor)

    def rename(old, new):
        happened.append(("named", pathlib.Path(new)))
        renamed(old, new)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    checkpoint.write(tmp_path / "x.npz", *trained, STATE)
    assert list(dict.fromkeys(happened)) == [
        ("on disk", tmp_path / "x.npz.tmp"), ("named", tmp_path / "x.npz"), ("on disk", tmp_path / "x.json.tmp"),
        ("named", tmp_path / "x.json"), ("on disk", tmp_path),
    ]  # fmt: skip


@pytest.mark.parametrize("last", range(4))
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "killed"])
def test_writes_that_die_at_any_moment_leave_the_earlier_checkpoint_of_their_name_or_the_new_one(
    monkeypatch, trained, written, last, error
):
    """Story: with one checkpoint to keep, a kill while it was written again, after a validation, lost all updates."""
    renamed, model_dir, steps = os.replace, written.parent.parent, [read_state(written)["step"]]
    for step in (13, 14):
        number = iter(range(4))

        def replace(old, new, number=number):
            if next(number) == last:
                raise error
            renamed(old, new)

        random_updates(*trained, 1, seed=step)
        with monkeypatch.context() as patch, contextlib.suppress(type(error)):
            patch.setattr(os, "replace", replace)
            checkpoint.write(written, *trained, {**STATE, "step": step})
        steps.append(step if last > 1 else steps[-1])
        model = new_model()
        path, state = checkpoint.restore_newest(model_dir, model, new_adam(model))
        assert (path, state["step"]) == (written, steps[-1])
        assert checkpoint.identity(model_dir, "latest") == {written.name: files.describe(written)}
    checkpoint.write(written, *trained, {**STATE, "step": 15})
    assert json.loads(written.with_suffix(".json").read_text()) == files.describe(written)


def test_a_checkpoint_whose_manifest_is_damaged_may_be_written_again(trained, written):
    written.with_suffix(".json").write_text("{")
    checkpoint.write(written, *trained, STATE)
    assert checkpoint.restore(written, *trained) == STATE


class Surprise:
    """What a pickle may do when it is read."""

    def __reduce__(self):
        return (os.mkdir, ("surprise",))


@pytest.mark.parametrize("name", ["state", "a weight"])
def test_a_pickle_is_not_opened(monkeypatch, tmp_path, trained, written, name):
    monkeypatch.chdir(tmp_path)
    if name == "a weight":
        name = next(iter(checkpoint.model_variables(trained[0])))
    rewrite(written, lambda contents: {**contents, name: np.array(Surprise(), dtype=object)})
    with pytest.raises(ValueError, match=written.name):
        checkpoint.restore(written, *trained)
    with pytest.raises(ValueError, match=written.name):
        checkpoint.load(tmp_path, "latest", trained[0])
    assert not (tmp_path / "surprise").exists()


def test_a_missing_file_stays_a_missing_file(trained, tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoint.restore(tmp_path / "none.npz", *trained)


def write_run(folder, steps) -> dict[int, dict]:
    """Checkpoints after these updates, all of other weights → {step: weights}."""
    model = new_model()
    adam = new_adam(model)
    weights = {}
    for step in steps:
        random_updates(model, adam, 1, seed=step)
        checkpoint.write(checkpoint.path_of(folder, step), model, adam, {**STATE, "step": step})
        weights[step] = arrays(model)
    return weights


def mean_of(weights: dict[int, dict], *steps: int) -> dict:
    return {
        name: np.mean([weights[step][name].astype(np.float64) for step in steps], axis=0).astype(np.float32)
        for name in weights[steps[0]]
    }


def test_the_average_of_checkpoints_is_the_mean_of_their_weights(tmp_path):
    weights = write_run(tmp_path, range(1, 8))
    model = new_model()
    said, state = checkpoint.load(tmp_path, "average", model)
    assert_equal(arrays(model), mean_of(weights, *weights))
    assert "1, 2, 3, 4, 5, 6, 7" in said
    assert state["step"] == 7


@pytest.mark.parametrize("ending", ["npz", "json"])
def test_a_damaged_checkpoint_is_no_part_of_the_average_once_it_is_removed_as_the_message_says(tmp_path, ending):
    weights, model = write_run(tmp_path, [1, 2, 3]), new_model()
    path = checkpoint.path_of(tmp_path, 2)
    path.with_suffix(f".{ending}").write_bytes(b"{")
    with pytest.raises(
        checkpoint.DamagedError, match=f"{path.stem}.*remove its .npz and .json, or choose another checkpoint[.]$"
    ):
        checkpoint.load(tmp_path, "average", model)
    for kind in (".npz", ".json"):
        path.with_suffix(kind).unlink()
    checkpoint.load(tmp_path, "average", model)
    assert_equal(arrays(model), mean_of(weights, 1, 3))


def test_the_average_of_large_and_small_numbers_keeps_the_small_ones(tmp_path):
    """1e8 + 1 - 1e8: a sum in float32 forgets the one."""
    model = new_model()
    adam = new_adam(model)
    for step, value in enumerate((1e8, 1.0, -1e8), 1):
        model.embedding.matrix.assign(np.full(model.embedding.matrix.shape, value))
        checkpoint.write(checkpoint.path_of(tmp_path, step), model, adam, STATE)
    checkpoint.load(tmp_path, "average", model)
    np.testing.assert_allclose(model.embedding.matrix.numpy(), 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("which", ["average", "latest", "best"])
def test_one_checkpoint_is_its_own_average_latest_and_best(tmp_path, which):
    weights = write_run(tmp_path, [7])
    as_best(tmp_path, 7)
    model = new_model()
    said, _ = checkpoint.load(tmp_path, which, model)
    assert_equal(arrays(model), weights[7])
    assert which in said and "update 7" in said


def test_a_checkpoint_without_an_optimizer_is_loaded_and_averaged_but_not_resumed(tmp_path):
    model = new_model()
    weights = {}
    for step in (1, 2):
        random_updates(model, new_adam(model), 1, seed=step)
        checkpoint.write(checkpoint.path_of(tmp_path, step), model, None, {"step": step})
        weights[step] = arrays(model)
        with np.load(checkpoint.path_of(tmp_path, step)) as archive:
            assert {name.split("/")[0] for name in archive} == {"model", "state"}
    model = new_model()
    assert checkpoint.load(tmp_path, "1", model)[1] == {"step": 1}
    assert_equal(arrays(model), weights[1])
    assert checkpoint.restore(checkpoint.path_of(tmp_path, 2), model, None) == {"step": 2}
    assert_equal(arrays(model), weights[2])
    checkpoint.load(tmp_path, "average", model)
    assert_equal(arrays(model), mean_of(weights, 1, 2))
    adam = new_adam(model)
    before = arrays(model, adam)
    with pytest.raises(ValueError, match="step-000000002.npz has no optimizer, so training cannot be resumed from it."):
        checkpoint.restore_newest(tmp_path, model, adam)
    assert_equal(arrays(model, adam), before)


# A model that starts from another's weights.


class Encoder(keras.Layer):
    """Two weights of the translator by their names there, one that has another name, and one that is its own."""

    def __init__(self, width: int = 2):
        super().__init__(name="transformer")
        norm = keras.layers.LayerNormalization(name="norm")
        inner, table = keras.layers.Dense(3, name="inner"), keras.layers.Embedding(6, width, name="words")
        self.layers = {"norm": norm, "inner": inner, "words": table}
        norm.build([1, 2])
        inner.build([1, 2])
        table.build()


OF_TRANSLATOR = {
    "norm/gamma": "transformer/encoder_0/feed_forward_norm/norm/gamma",
    "norm/beta": "transformer/encoder_0/feed_forward_norm/norm/beta",
    "inner/kernel": "transformer/encoder_0/feed_forward/inner/kernel",
    "words/embeddings": "transformer/embedding/matrix",
}  # fmt: skip


def name_in_translator(name: str) -> str | None:
    found = OF_TRANSLATOR.get(name.removeprefix("model/"))
    return found and f"model/{found}"


def test_an_encoder_starts_from_the_weights_of_a_translator(tmp_path):
    """Of the average of two checkpoints, by a mapping of names; what neither has of the other is told."""
    weights = write_run(tmp_path, [1, 2])
    encoder = Encoder()
    bias = np.float32([1, 2, 3])
    encoder.layers["inner"].bias.assign(bias)
    said, left = checkpoint.start(tmp_path, "average", encoder, name_in_translator)
    assert said == f"average of {tmp_path}: updates 1, 2"
    received = {
        name.removeprefix("model/"): np.asarray(variable)
        for name, variable in checkpoint.model_variables(encoder).items()
    }
    mean = mean_of(weights, 1, 2)
    assert_equal(received, {ours: mean[theirs] for ours, theirs in OF_TRANSLATOR.items()} | {"inner/bias": bias})
    assert left.unset == ["model/inner/bias"]
    assert left.unused == sorted(f"model/{name}" for name in weights[1].keys() - set(OF_TRANSLATOR.values()))


@pytest.mark.parametrize("which", ["latest", "best", "1"])
def test_a_shallower_model_starts_from_a_deeper_one_by_its_own_names(tmp_path, which):
    deep = new_model(encoder_layers=2)
    checkpoint.write(checkpoint.path_of(tmp_path, 1), deep, None, STATE)
    as_best(tmp_path, 1)
    model = new_model(learned_positions=4)
    positions = model.positions.table.numpy()
    left = checkpoint.start(tmp_path, which, model)[1]
    assert left.unset == ["model/transformer/positions/table"]
    assert left.unused and all(name.startswith("model/transformer/encoder_1/") for name in left.unused)
    assert_equal(arrays(model), {path: arrays(deep).get(path, positions) for path in arrays(model)})


def test_a_start_from_weights_of_another_shape_is_refused_with_both_and_changes_nothing(tmp_path):
    write_run(tmp_path, [1])
    encoder = Encoder(width=5)
    before = {name: variable.numpy() for name, variable in checkpoint.model_variables(encoder).items()}
    with pytest.raises(ValueError, match=r"'model/words/embeddings' of .*\(6, 5\).* in .*1.npz. Received: .*\(6, 2\)"):
        checkpoint.start(tmp_path, "latest", encoder, name_in_translator)
    assert_equal({name: variable.numpy() for name, variable in checkpoint.model_variables(encoder).items()}, before)


def test_a_start_from_a_run_that_shares_no_name_is_refused(tmp_path):
    write_run(tmp_path, [1])
    with pytest.raises(
        ValueError,
        match="step-000000001.npz has no 'model/inner/bias' and 4 more but has 'model/transformer/.*another model",
    ):
        checkpoint.start(tmp_path, "latest", Encoder())


def test_an_error_in_the_mapping_of_names_is_not_taken_for_a_damaged_file(tmp_path):
    write_run(tmp_path, [1])
    with pytest.raises(KeyError, match="model/"):
        checkpoint.start(tmp_path, "latest", new_model(), {}.__getitem__)


def test_an_average_of_checkpoints_that_hold_different_weights_is_refused(tmp_path):
    """Half a sum would be a wrong weight."""
    write_run(tmp_path, [1, 2])
    rewrite(
        checkpoint.path_of(tmp_path, 1),
        lambda contents: {name: a for name, a in contents.items() if "matrix" not in name},
    )
    with pytest.raises(ValueError, match="step-000000002.npz to hold the same weights as .*step-000000001.npz"):
        checkpoint.start(tmp_path, "average", new_model())


@pytest.mark.parametrize("compressed", ["model/x", "model/transformer/embedding/matrix"])
def test_a_start_reads_only_what_it_takes(tmp_path, written, compressed):
    replace_member(written, compressed, member(), zipfile.ZIP_DEFLATED)
    model = new_model()
    with toy.memory_below(BOMB / 8):
        checkpoint.start(tmp_path, "latest", model, lambda name: None if "matrix" in name else name)


@pytest.mark.parametrize("which", ["average", "latest", "best"])
def test_where_there_is_no_checkpoint_the_error_says_so(tmp_path, which):
    with pytest.raises(FileNotFoundError, match=f"`checkpoint={which}`"):
        checkpoint.load(tmp_path, which, new_model())


def test_a_run_that_goes_on_while_its_checkpoints_are_read_may_remove_them(tmp_path, monkeypatch):
    weights, read = write_run(tmp_path, [1, 2]), checkpoint._read

    def read_while_training(path, *arguments):
        if checkpoint.kept(tmp_path)[-1] == checkpoint.path_of(tmp_path, 2):
            weights.update(write_run(tmp_path, [3]))
            checkpoint.remove_old(tmp_path, 2)
        return read(path, *arguments)

    monkeypatch.setattr(checkpoint, "_read", read_while_training)
    model = new_model()
    said, state = checkpoint.load(tmp_path, "average", model)
    assert said.endswith("updates 2, 3") and state["step"] == 3
    assert_equal(arrays(model), mean_of(weights, 2, 3))


def test_the_weights_after_an_update_are_chosen_by_its_number(tmp_path):
    weights = write_run(tmp_path, [2, 9, 10, 100])
    as_best(tmp_path, 2)
    model = new_model()
    for which, step in (("9", 9), ("2", 2), ("10", 10), ("latest", 100), ("best", 2)):
        said, _ = checkpoint.load(tmp_path, which, model)
        assert_equal(arrays(model), weights[step])
        assert said == f"{which if which.isalpha() else 'checkpoint'} of {tmp_path}: update {step}"
    # The best one stays when the newest have moved on.
    checkpoint.remove_old(tmp_path, 1)
    checkpoint.load(tmp_path, "2", model)
    assert_equal(arrays(model), weights[2])


@pytest.mark.parametrize("which", ["3", "0", "9" * 18])
def test_the_number_of_no_checkpoint_is_answered_by_those_there_are(tmp_path, which):
    write_run(tmp_path, [2, 9])
    as_best(tmp_path, 2)
    with pytest.raises(FileNotFoundError, match=f"`checkpoint={which}` .* There are updates: 2, 9; best: 2."):
        checkpoint.load(tmp_path, which, new_model())


def test_an_unknown_choice_of_weights_names_those_there_are(tmp_path):
    with pytest.raises(ValueError, match="average, best, latest.*newest"):
        checkpoint.load(tmp_path, "newest", new_model())


def test_the_newest_are_kept_in_the_order_of_their_numbers(tmp_path):
    steps = [1, 9, 10, 99, 100, 1_000, 999_999_999, 1_000_000_000]
    for step in reversed(steps):
        path = checkpoint.path_of(tmp_path, step)
        path.parent.mkdir(exist_ok=True)
        path.touch()
        describe(path)
    assert steps_of(tmp_path) == steps
    for number in (3, 5):
        checkpoint.remove_old(tmp_path, number)
        assert steps_of(tmp_path) == steps[-3:]


def test_the_manifest_is_the_size_and_the_sha_256(written):
    content = written.read_bytes()
    expected = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert json.loads(written.with_suffix(".json").read_text()) == expected


def test_a_checkpoint_of_another_size_is_not_hashed(written):
    """Story: a sparse file of terabytes was hashed for hours."""
    with written.open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(checkpoint.DamagedError, match="is damaged. .* Received: 1,099,511,627,776 bytes."):
        checkpoint.restore(written, (model := new_model()), new_adam(model))


def test_the_newest_whole_checkpoint_is_restored_and_newer_ones_are_reported(tmp_path, messages):
    """Truncated, flipped or missing: with each, the one before is as good as it was."""
    weights = write_run(tmp_path, [1, 2, 3, 4])
    paths = checkpoint.kept(tmp_path)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    paths[2].write_bytes(b"\x00" + paths[2].read_bytes()[1:])
    paths[3].unlink()
    model = new_model()
    path, state = checkpoint.restore_newest(tmp_path, model, new_adam(model))
    assert (path, state["step"]) == (paths[0], 1)
    assert_equal(arrays(model), weights[1])
    assert all(paths[index].name in line for index, line in zip((3, 2, 1), messages, strict=True))
    assert ["missing" in line for line in messages] == [True, False, False]
    checkpoint.put_aside(tmp_path, after=path)
    assert checkpoint.kept(tmp_path) == [paths[0]]
    assert names_in(tmp_path) == [
        "step-000000001.json", "step-000000001.npz", "step-000000002.damaged", "step-000000003.damaged"
    ]  # fmt: skip


def test_where_no_checkpoint_is_whole_training_does_not_start_anew_in_silence(tmp_path):
    write_run(tmp_path, [1])
    checkpoint.path_of(tmp_path, 1).write_bytes(b"")
    model = new_model()
    with pytest.raises(checkpoint.DamagedError, match=str(tmp_path)):
        checkpoint.restore_newest(tmp_path, model, new_adam(model))
    assert checkpoint.restore_newest(tmp_path / "new", model, new_adam(model)) is None


def test_a_checkpoint_of_another_model_is_not_taken_for_a_damaged_one(tmp_path):
    write_run(tmp_path, [1, 2])
    model = new_model(d_ff=5)
    with pytest.raises(ValueError, match="Expected 'model/"):
        checkpoint.restore_newest(tmp_path, model, new_adam(model))


def test_an_archive_without_a_manifest_is_unfinished_and_is_cleared_away(tmp_path):
    """A kill between the two leaves one."""
    write_run(tmp_path, [1, 2, 3])
    for step in (1, 3):
        checkpoint.path_of(tmp_path, step).with_suffix(".json").unlink()
    assert steps_of(tmp_path) == [2]
    checkpoint.remove_old(tmp_path, 5)
    assert names_in(tmp_path) == ["step-000000002.json", "step-000000002.npz"]


def test_the_best_are_kept_apart_from_the_newest(tmp_path):
    write_run(tmp_path, [1, 2, 3])
    as_best(tmp_path, 1)
    as_best(tmp_path, 2)
    checkpoint.remove_old(tmp_path, 1)
    checkpoint.remove_old(tmp_path, 1, checkpoint.BEST)
    assert steps_of(tmp_path, checkpoint.BEST) == [2] and steps_of(tmp_path) == [3]


def test_a_full_disk_is_reported_and_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    weights = write_run(tmp_path, [1])
    toy.fill_disk(monkeypatch, "step-000000002.npz.*")
    model = new_model()
    with pytest.raises(OSError, match="step-000000002.npz.*No space left on device.*free space"):
        checkpoint.write(checkpoint.path_of(tmp_path, 2), model, new_adam(model), STATE)
    assert names_in(tmp_path) == ["step-000000001.json", "step-000000001.npz"]
    checkpoint.load(tmp_path, "latest", model)
    assert_equal(arrays(model), weights[1])


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, trained):
    (tmp_path / "checkpoints").write_bytes(b"a file where a folder should be")
    with pytest.raises(OSError, match="Could not write .*permission"):
        checkpoint.write(checkpoint.path_of(tmp_path, 1), *trained, STATE)


def test_several_archives_without_manifests_are_not_thrown_away(tmp_path):
    """Somebody copied the archives alone, or they are of an older version."""
    write_run(tmp_path, [1, 2])
    for path in checkpoint.kept(tmp_path):
        path.with_suffix(".json").unlink()
    model = new_model()
    with pytest.raises(checkpoint.DamagedError, match="step-000000002.npz.*manifest"):
        checkpoint.restore_newest(tmp_path, model, new_adam(model))


def test_what_lies_after_the_last_update_is_of_a_run_that_was_left(tmp_path):
    """A best one of updates that a kill undid would otherwise be taken for the newest best."""
    write_run(tmp_path, [1, 2, 3])
    for step in (2, 3):
        as_best(tmp_path, step)
    checkpoint.remove_old(tmp_path, 1, checkpoint.BEST, last=2)
    assert steps_of(tmp_path, checkpoint.BEST) == [2]


# Somebody's own files.

STRANGERS = (
    "step-000000001-keep.npz", "step-000000001-keep.json", "step-000000080 (copy).json", "step-000000080 (copy).npz",
    "step-1.json", "step-1.npz", "step-0000000001.npz", "step-0000000001.json", "step-٠٠٠٠٠٠٠٠١.json",
    "step-000000001.npz.bak", "step-000000001.json\n", "best-of-all.npz", "notes.tmp", "my.npz",
    "step-000000001.damaged", "Step-000000001.npz",
)  # fmt: skip


def test_what_somebody_keeps_in_the_folder_is_not_used_and_not_removed(tmp_path, messages):
    """Story: a copy kept as `step-000000040-keep.npz` was removed, and `step-000000080 (copy).json` stopped every
    program.
    """
    weights = write_run(tmp_path, [1, 2, 3])
    folder = tmp_path / checkpoint.FOLDER
    for name in STRANGERS:
        (folder / name).write_text("mine")
    (folder / "step-000000009.json").mkdir()
    for kind in (checkpoint.STEP, checkpoint.BEST):
        checkpoint.remove_old(tmp_path, 1, kind)
    assert steps_of(tmp_path) == [3] and steps_of(tmp_path, checkpoint.BEST) == []
    assert names_in(tmp_path) == sorted(
        (*STRANGERS, "step-000000003.json", "step-000000003.npz", "step-000000009.json")
    )
    assert all((folder / name).read_text() == "mine" for name in STRANGERS)
    model = new_model()
    assert checkpoint.restore_newest(tmp_path, model, new_adam(model))[0] == checkpoint.path_of(tmp_path, 3)
    assert messages == []
    assert_equal(arrays(model), weights[3])


def test_all_that_a_killed_write_leaves_is_removed(tmp_path):
    write_run(tmp_path, [1])
    names = (
        *("step-000000002.npz", "step-000000002.npz.0123456789abcdef.tmp", "best-000000002.json.0123456789abcdef.tmp"),
        *("step-000000002.tmp", "step-000000002.json.tmp", "best-000000002.tmp")
    )  # fmt: skip  # The last ones are of version 0.1.
    for name in names:
        (tmp_path / checkpoint.FOLDER / name).write_text("half")
    assert steps_of(tmp_path) == [1]
    checkpoint.remove_old(tmp_path, 1)
    assert names_in(tmp_path) == ["step-000000001.json", "step-000000001.npz"]


# Archives from somebody who means harm: their manifests are right.

BOMB = 2**24  # Bytes, of zeros.


def member(shape=(BOMB // 4,), dtype="<f4", zeros: int = BOMB) -> bytes:
    """A `.npy` of these words in its header, whatever follows."""
    written = io.BytesIO()
    npy.write_array_header_1_0(written, {"descr": dtype, "fortran_order": False, "shape": shape})
    return written.getvalue() + bytes(zeros)


def replace_member(path, name: str, content: bytes, compression: int) -> None:
    """Puts content in place of a member of an archive, or beside them."""
    with zipfile.ZipFile(path) as archive:
        contents = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for each, bytes_ in {**contents, f"{name}.npy": content}.items():
            archive.writestr(each, bytes_, compression if each == f"{name}.npy" else zipfile.ZIP_STORED)
    describe(path)


# In place of which member, what, given a weight's shape; and how it is refused.
BOMBS = {
    "another shape, compressed": ("weight", lambda shape: member(), zipfile.ZIP_DEFLATED, "is compressed"),
    "another shape": ("weight", lambda shape: member(), zipfile.ZIP_STORED, "Expected .* of shape"),
    "the right shape, compressed": ("weight", lambda shape: member(shape), zipfile.ZIP_DEFLATED, "is compressed"),
    "the right shape, and more": ("weight", lambda shape: member(shape), zipfile.ZIP_STORED, "does not have the size"),
    "the right shape, and less": ("weight", lambda shape: member(shape, zeros=3), zipfile.ZIP_STORED,
                                  "does not have the size"),
    "a shape without end": ("weight", lambda shape: member((2**62, 2**62), zeros=8), zipfile.ZIP_STORED,
                            "Expected .* of shape"),
    "a negative shape": ("weight", lambda shape: member((-1,), zeros=8), zipfile.ZIP_STORED, "Expected .* of shape"),
    "a long state": ("state", lambda shape: member((), f"<U{BOMB // 4}"), zipfile.ZIP_STORED, "is not a text"),
    "a state that is no text": ("state", lambda shape: member((), "<f4", 4), zipfile.ZIP_STORED, "is not a text"),
    "a state that is no object": ("state", lambda shape: member((), "<U2", 0) + "[]".encode("utf-32-le"),
                                  zipfile.ZIP_STORED, "JSON object"),
    "no array": ("weight", lambda shape: b"#!/bin/sh", zipfile.ZIP_STORED, "is not a valid checkpoint"),
    "one more array": ("model/x", lambda shape: member(), zipfile.ZIP_DEFLATED, "has 'model/x'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_an_array_is_read_only_if_its_header_is_a_weight_s(tmp_path, trained, written, name):
    """Story: 9.9 MB of compressed zeros took 2 GiB before their shape was compared."""
    model = trained[0]
    weight, variable = next(iter(checkpoint.model_variables(model).items()))
    place, content, compression, expected = BOMBS[name]
    replace_member(written, weight if place == "weight" else place, content(tuple(variable.shape)), compression)
    before = arrays(*trained)
    with toy.memory_below(BOMB / 8):
        with pytest.raises(ValueError, match=expected) as raised:
            checkpoint.load(tmp_path, "latest", model)
        with pytest.raises(ValueError, match=expected):
            checkpoint.restore(written, *trained)
    assert written.name in str(raised.value)
    assert_equal(arrays(*trained), before)


def test_what_nobody_asks_for_is_not_read(tmp_path, trained, written):
    replace_member(written, "other/x", member(), zipfile.ZIP_DEFLATED)
    with toy.memory_below(BOMB / 8):
        assert checkpoint.restore(written, *trained) == STATE


@pytest.mark.parametrize("content", ["[]", "null", "3", "[" * 10**5, '{"bytes": 1}', " " * 2**21 + "{}"])
def test_a_manifest_of_another_shape_is_a_damaged_one(trained, written, content):
    written.with_suffix(".json").write_text(content)
    with pytest.raises(checkpoint.DamagedError, match=written.stem):
        checkpoint.restore(written, *trained)


def test_files_too_small_for_a_model_are_found_before_it_is_made(tmp_path, trained, written):
    weights = trained[0].config.num_weights
    newer = checkpoint.path_of(tmp_path, 13)
    newer.write_bytes(b"")  # A truncated one is told of by those who read it.
    describe(newer)
    checkpoint.check_size(tmp_path, "average", weights)
    with pytest.raises(checkpoint.DamagedError, match=f"1,000,000,000 float32 weights in {written}"):
        checkpoint.check_size(tmp_path, "average", 10**9)
    with_optimizer = written.stat().st_size // 4  # Its weights do not count.
    with pytest.raises(checkpoint.DamagedError, match=f"{with_optimizer:,} float32 weights in {written}. Received "):
        checkpoint.check_size(tmp_path, "average", with_optimizer)
    with pytest.raises(FileNotFoundError, match="`checkpoint=best`"):
        checkpoint.check_size(tmp_path, "best", weights)


def test_weights_that_do_not_fit_into_the_free_memory_are_refused_before_the_model_is_made(
    tmp_path, trained, written, monkeypatch
):
    """Story: a sparse file of a large model took 9 GB and went on."""
    weights = trained[0].config.num_weights
    monkeypatch.setattr(checkpoint.machine, "free_memory", lambda: 12 * weights)
    checkpoint.check_size(tmp_path, "average", weights)
    monkeypatch.setattr(checkpoint.machine, "free_memory", lambda: 12 * weights - 1)
    with pytest.raises(ValueError, match=f"^Expected a model that fits into the free memory.*with {weights:,} weights"):
        checkpoint.check_size(tmp_path, "average", weights)
