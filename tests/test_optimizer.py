"""Section 5.3: lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), and Adam's constants."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.config import TrainConfig
from t2t_keras.training.optimizer import Adam, Cooldown, TransformerSchedule, adam, schedule_of


def rate(schedule, step: int) -> float:
    """At the paper's step, which counts the update that is being made; Keras counts those that have been."""
    return float(schedule(step - 1))


@pytest.mark.parametrize(("step", "expected"), [
    (1, 1.74693e-07),  # 1 / (√512 · 4000^1.5)
    (2000, 3.49386e-04),  # half of the highest
    (4000, 6.98771e-04),  # 1 / √(512 · 4000), the highest
    (16000, 3.49386e-04),  # four times the step, half the rate
    (100_000, 1.39754e-04),  # 1 / √(512 · 100000)
])  # fmt: skip
def test_the_rate_at_the_papers_steps_is_what_equation_3_gives_by_hand(step, expected):
    assert rate(TransformerSchedule(512, 4000), step) == pytest.approx(expected, rel=1e-5)


def test_the_schedule_of_fairseq_and_marian_is_this_one_with_the_factor_of_the_docs():
    """docs/migrating.md: a linear warm-up to a peak, then the peak times √(warmup_steps / step)."""
    peak, d_model, warmup_steps = 5e-4, 512, 4000
    factor = peak * (d_model * warmup_steps) ** 0.5
    assert f"{factor:.3f}" == "0.716"
    for step in (1, 1000, 4000, 9000, 100_000):
        expected = peak * step / warmup_steps if step < warmup_steps else peak * (warmup_steps / step) ** 0.5
        assert rate(TransformerSchedule(d_model, warmup_steps, factor), step) == pytest.approx(expected, rel=1e-5)


def test_the_warm_up_of_a_schedule_is_the_paper_s_and_its_factor_is_one_unless_they_are_given():
    assert TransformerSchedule(512).get_config() == {"d_model": 512, "warmup_steps": 4000, "factor": 1.0}


def test_the_two_branches_meet_at_warm_up_and_nowhere_is_the_rate_higher():
    schedule, warmup_steps, d_model = TransformerSchedule(64, 50), 50, 64
    rates = np.array([rate(schedule, step) for step in range(1, 151)])
    steps = np.arange(1, 151)
    rising, falling = d_model**-0.5 * steps * warmup_steps**-1.5, d_model**-0.5 * steps**-0.5
    assert rising[warmup_steps - 1] == pytest.approx(falling[warmup_steps - 1])
    np.testing.assert_allclose(rates[:warmup_steps], rising[:warmup_steps], rtol=1e-5)
    np.testing.assert_allclose(rates[warmup_steps - 1 :], falling[warmup_steps - 1 :], rtol=1e-5)
    assert rates.argmax() == warmup_steps - 1


def test_the_factor_multiplies_the_whole_rate():
    for step in (1, 4000, 9000):
        found = rate(TransformerSchedule(512, 4000, factor=2.5), step)
        assert found == pytest.approx(2.5 * rate(TransformerSchedule(512, 4000), step))


def test_the_rate_falls_to_zero_over_the_last_updates_by_hand():
    """Width 1 and a warm-up of one update: the paper's rate at step n is 1 / √n. Four of ten updates cool down."""
    schedule = Cooldown(TransformerSchedule(1, 1), train_steps=10, cooldown_steps=4)
    expected = {
        1: 1.0, 4: 0.5, 6: 6**-0.5, 7: 7**-0.5, 8: 0.75 * 8**-0.5, 9: 0.5 / 3, 10: 0.25 * 10**-0.5, 11: 0.0, 12: 0.0,
    }  # fmt: skip
    assert {step: rate(schedule, step) for step in expected} == pytest.approx(expected)


def test_a_cooldown_during_the_warm_up_multiplies_the_rising_rate():
    # The paper's rates are 1/8, 2/8, 3/8 and 4/8.
    schedule = Cooldown(TransformerSchedule(1, 4), train_steps=4, cooldown_steps=4)
    assert [rate(schedule, step) for step in (1, 2, 3, 4)] == pytest.approx([4 / 32, 6 / 32, 6 / 32, 4 / 32])


def test_the_schedule_of_a_run_is_the_paper_s_unless_it_has_a_cooldown():
    config = TrainConfig(train_steps=10, warmup_steps=2, learning_rate_factor=3.0)
    assert schedule_of(4, config).get_config() == TransformerSchedule(4, 2, 3.0).get_config()
    cooled = schedule_of(4, dataclasses.replace(config, cooldown_steps=5))
    assert [rate(cooled, step) for step in (4, 9, 10)] == pytest.approx([3 / 4, 0.4 * 3 / 6, 0.2 * 1.5 * 10**-0.5])


def test_a_constant_rate_after_its_warm_up_by_hand():
    config = TrainConfig(train_steps=10, warmup_steps=4, learning_rate=0.2)
    expected = {1: 0.05, 2: 0.1, 4: 0.2, 5: 0.2, 9: 0.2}
    assert {step: rate(schedule_of(512, config), step) for step in expected} == pytest.approx(expected)
    cooled = schedule_of(512, dataclasses.replace(config, cooldown_steps=2))
    assert [rate(cooled, step) for step in (4, 8, 9, 10, 11)] == pytest.approx([0.2, 0.2, 0.2, 0.1, 0.0])
    assert schedule_of(512, config).get_config() == {"rate": 0.2, "warmup_steps": 4}


def test_a_cooldown_may_be_a_share_of_the_updates():
    config = TrainConfig(train_steps=9, warmup_steps=1)
    rates = {
        name: [float(schedule_of(4, dataclasses.replace(config, **options))(step)) for step in range(9)]
        for name, options in {"share": {"cooldown_share": 0.34}, "steps": {"cooldown_steps": 3}}.items()
    }
    assert rates["share"] == rates["steps"]
    with pytest.raises(ValueError, match="`cooldown_steps` and `cooldown_share` exclude each other"):
        dataclasses.replace(config, cooldown_steps=3, cooldown_share=0.5)


@pytest.mark.parametrize("cooldown_steps", [0, -1, 11])
def test_a_cooldown_that_the_run_has_no_updates_for_is_refused(cooldown_steps):
    with pytest.raises(ValueError, match=f"^Expected 1 to 10 .* Received: cooldown_steps={cooldown_steps}"):
        Cooldown(TransformerSchedule(8), 10, cooldown_steps)


def test_adam_has_the_papers_constants():
    optimizer = adam(TransformerSchedule(512))
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    expected = (None, None, None, False)
    assert (optimizer.weight_decay, optimizer.clipnorm, optimizer.global_clipnorm, optimizer.amsgrad) == expected


def test_an_optimizer_counts_its_own_updates_from_the_papers_step_one():
    variable = keras.Variable(np.zeros(2, "float32"))
    schedule = TransformerSchedule(512, 4000)
    optimizer = adam(schedule)
    optimizer.build([variable])
    for step in (1, 2, 3):
        assert float(optimizer.learning_rate) == pytest.approx(rate(schedule, step))
        optimizer.apply([np.ones(2, "float32")])


def test_schedule_and_optimizer_survive_serialisation():
    schedule = TransformerSchedule(128, warmup_steps=77, factor=0.5)
    serialised = keras.saving.serialize_keras_object(adam(schedule))
    again = keras.saving.deserialize_keras_object(serialised)
    assert (again.beta_1, again.beta_2, again.epsilon) == (0.9, 0.98, 1e-9)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert restored.get_config() == schedule.get_config() == {"d_model": 128, "warmup_steps": 77, "factor": 0.5}
    assert float(again.learning_rate) == rate(schedule, 1)
    cooled = Cooldown(schedule, 100, 30)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(cooled))
    assert restored.get_config() == cooled.get_config()
    assert rate(restored, 91) == rate(cooled, 91) == pytest.approx(rate(schedule, 91) / 3)


@pytest.mark.parametrize("sizes", [{"d_model": 0}, {"d_model": -4}, {"d_model": 512, "warmup_steps": 0}])
def test_sizes_that_are_not_positive_are_refused_with_what_was_received(sizes):
    with pytest.raises(ValueError) as error:
        TransformerSchedule(**sizes)
    for name, value in sizes.items():
        assert f"{name}={value}" in str(error.value)


def test_adam_makes_the_updates_of_keras():
    """Weights of several shapes and gradients of all sizes, zero among them."""
    draw = np.random.default_rng(0)
    start = [draw.normal(size=shape).astype("float32") for shape in ((4, 3), (5,), ())]
    found = []
    for make in (lambda schedule: keras.optimizers.Adam(schedule, 0.9, 0.98, 1e-9), adam):
        weights, draw = [keras.Variable(value) for value in start], np.random.default_rng(1)
        optimizer = make(TransformerSchedule(8, 4))
        optimizer.build(weights)
        for step in range(20):
            optimizer.apply(
                [np.float32(10.0 ** (step % 7 - 4) * draw.normal(size=value.shape) * (step != 5)) for value in start]
            )
        found.append([np.array(variable) for variable in (*weights, *optimizer.variables)])
    assert len(found[0]) == 3 + 1 + 2 * 3  # The weights; the number of updates; two averages of each weight.
    for ours, keras_s in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, keras_s, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("dtype", "options"), [("float32", {"amsgrad": True}), ("bfloat16", {})], ids=["AMSGrad", "another dtype"]
)
def test_what_is_not_made_in_one_operation_has_the_updates_of_keras_too(dtype, options):
    """The first gradient is the largest, of which AMSGrad keeps the average."""
    found = []
    for make in (keras.optimizers.Adam, Adam):
        weight, optimizer = keras.Variable(np.array([1.0, -2.0]), dtype=dtype), make(0.1, 0.5, 0.75, **options)
        optimizer.build([weight])
        for gradient in (3.0, -0.5, 0.25):
            optimizer.apply([keras.ops.full([2], gradient, dtype)])
        found.append(np.array(weight).astype("float32"))
    np.testing.assert_array_equal(*found)


def test_an_update_of_a_weight_is_one_operation():
    variable = tf.Variable(np.zeros(2, "float32"))
    optimizer = adam(TransformerSchedule(512))
    optimizer.build([variable])
    graph = tf.function(lambda: optimizer.update_step(tf.ones(2), variable, 0.1)).get_concrete_function().graph
    assert [
        operation.type
        for operation in graph.get_operations()
        if "Assign" in operation.type or "Apply" in operation.type
    ] == ["ResourceApplyAdam"]


@pytest.mark.parametrize("constants", [{"beta_1": 0}, {"epsilon": 0}, {"beta_2": np.float64(0.9)}])
def test_adam_takes_integers_and_numbers_of_numpy(constants):
    """The first update moves each weight by the learning rate, whatever the constants are."""
    weight = keras.Variable([1.0, 2.0])
    optimizer = Adam(1e-3, **constants)
    optimizer.build([weight])
    optimizer.apply([tf.constant([1.0, -1.0])], [weight])
    np.testing.assert_allclose(weight.numpy(), [0.999, 2.001], rtol=1e-6)
