"""The moving average of the weights (`--ema_decay`): it follows from all updates, and is a choice of weights."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import test_parent
from logged import logged
from toy import strategy_of

import t2t_keras
from t2t_keras.decoding import loading
from t2t_keras.runs import checkpoint
from t2t_keras.runs.run_start import Start
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.training import parent, run
from t2t_keras.training.optimizer import adam

DECAY = 0.8
GIVEN = test_parent.GIVEN | {
    "train_steps": 5, "warmup_steps": 5, "valid_steps": 5, "checkpoint_steps": 1, "keep_checkpoints": 5,
}  # fmt: skip


def trained(model_dir: pathlib.Path, replicas: int = 1, **given) -> pathlib.Path:
    run.train(Start.open(model_dir, given), strategy=strategy_of(replicas))
    return model_dir


def arrays(path: pathlib.Path, kind: str) -> dict:
    with np.load(path) as archive:
        return {name.removeprefix(f"{kind}/"): archive[name] for name in archive.files if name.startswith(f"{kind}/")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    return trained(
        tmp_path_factory.mktemp("ema") / "run", 2, **GIVEN, ema_decay=DECAY, freeze="embedding", dtype="bfloat16"
    )


@pytest.mark.medium
def test_it_is_the_decayed_sum_of_the_weights_after_each_update(folder):
    """On two devices, in bfloat16, with a frozen embedding, which is its own average. The first are the weights."""
    averages, paths = None, checkpoint.kept(folder)
    assert [checkpoint.step_of(path) for path in paths] == [1, 2, 3, 4, 5]
    for path in paths:
        weights, found = arrays(path, "model"), arrays(path, "ema")
        before = averages or weights
        averages = {name: DECAY * before[name] + (1 - DECAY) * weights[name] for name in weights}
        assert found.keys() == weights.keys()
        for name, expected in averages.items():
            assert found[name].dtype == np.float32
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)
    moved = [name for name in weights if not np.allclose(found[name], weights[name], atol=1e-5)]
    assert "transformer/embedding/matrix" not in moved and len(moved) > 10


@pytest.mark.medium
def test_a_restored_optimizer_continues_with_it(folder):
    options, path = SavedRun.open(folder).options, checkpoint.path_of(folder, 4)
    model, optimizer = run._make_model(strategy_of(1), options)
    checkpoint.restore(path, model, optimizer)
    weight = model.decoder[0].feed_forward.inner.kernel
    optimizer.update_step(np.ones(weight.shape, np.float32), weight, 0.1)
    optimizer.update_average(weight, optimizer.average_share())
    before, name = arrays(path, "ema"), weight.path
    expected = DECAY * before[name] + (1 - DECAY) * np.array(weight)
    np.testing.assert_allclose(optimizer.averages[name], expected, rtol=1e-5)
    assert not np.allclose(expected, before[name], rtol=1e-5)


@pytest.mark.medium
def test_the_checkpoint_ema_loads_it(folder):
    with logged() as said:
        model = loading.load(folder, "ema").model
    assert f"Using the moving average of {folder}: update 5." in said
    expected = arrays(checkpoint.path_of(folder, 5), "ema")
    for name, weight in checkpoint.model_variables(model).items():
        np.testing.assert_array_equal(weight, expected[name.removeprefix("model/")], err_msg=name)


@pytest.mark.medium
def test_a_child_starts_from_it(folder, tmp_path):
    [model, _] = run._make_model(
        strategy_of(1), Start.open(tmp_path / "child", {"parent": str(folder), "parent_checkpoint": "ema"}).options
    )
    parent.start(SavedRun.open(folder), "ema", model, loading.read_tokenizer(SavedRun.open(folder)))
    expected = arrays(checkpoint.path_of(folder, 5), "ema")
    for name, weight in checkpoint.model_variables(model).items():
        np.testing.assert_array_equal(weight, expected[name.removeprefix("model/")], err_msg=name)


@pytest.mark.medium
def test_a_run_without_one_says_so(folder, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["train"]["ema_decay"] = 0.0
    (folder / "config.json").write_text(json.dumps(config))
    expected = f"Expected a run with a moving average of its weights. Received: {folder}, trained with ema_decay=0."
    with pytest.raises(ValueError, match=f"{expected} Choose another `checkpoint`."):
        t2t_keras.load(folder, checkpoint="ema")
    with pytest.raises(ValueError, match=f"{expected} Choose another `parent_checkpoint`."):
        Start.open(tmp_path / "child", {"parent": str(folder), "parent_checkpoint": "ema"})
    with pytest.raises(ValueError, match="Expected the options that .* was trained with. Received: ema_decay=0.5 "):
        trained(folder, ema_decay=0.5)


@pytest.mark.medium
def test_a_checkpoint_from_which_it_was_taken_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    path = checkpoint.path_of(copy, 5)
    with np.load(path) as archive:
        kept = {name: archive[name] for name in archive.files if not name.startswith("ema/")}
    np.savez(path, **kept)
    path.with_suffix(".json").write_text(json.dumps(checkpoint.describe(path)))
    with pytest.raises(ValueError, match=f"{path} has no moving average of the weights"):
        loading.load(copy, "ema")


def test_without_a_decay_the_optimizer_keeps_none():
    variable = t2t_keras.Dense(2, name="dense")
    variable.build((1, 3))
    plain, averaging = adam(1e-3), adam(1e-3, DECAY)
    for optimizer in (plain, averaging):
        optimizer.build(variable.trainable_variables)
    assert plain.averages == {}
    assert list(averaging.averages) == [weight.path for weight in variable.trainable_variables]
    assert len(averaging.variables) == len(plain.variables) + 2
