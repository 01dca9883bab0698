"""Adam and its learning rate schedule (section 5.3): lrate = d_model^-0.5 · min(step^-0.5, step ·
warmup_steps^-1.5).
"""

import keras
import tensorflow as tf
from keras import ops

from t2t_keras.config import TrainConfig
from t2t_keras.system.compat import adam_averages, moving_average, moving_averages


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of equation 3: it grows linearly for `warmup_steps` updates, then decays with the inverse
    square root of the step.

    Keras counts finished updates, so `schedule(0)` is the paper's rate at step 1.

    Args:
        d_model: width of the model.
        warmup_steps: number of warm-up updates; the rate is highest after them.
        factor: multiplies the rate; the paper's is 1.

    Raises:
        ValueError: `d_model` or `warmup_steps` is not positive.

    Example:

    ```python
    schedule = t2t_keras.TransformerSchedule(d_model=512)
    [round(float(schedule(step)), 6) for step in (0, 3999, 99_999)]  # [0.0, 0.000699, 0.00014]
    ```
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, factor: float = 1.0):
        if d_model < 1 or warmup_steps < 1:
            raise ValueError(f"Expected positive numbers. Received: d_model={d_model}, warmup_steps={warmup_steps}.")
        self.d_model, self.warmup_steps, self.factor = d_model, warmup_steps, factor

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        return self.factor * self.d_model**-0.5 * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)

    def get_config(self):
        return dict(vars(self))


@keras.saving.register_keras_serializable("t2t_keras")
class Cooldown(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that falls linearly to 0 over the last updates of a run (Zhai et al. 2022, section 3.5).

    The rate of another schedule is multiplied by the number of updates left of `train_steps`, this one included, over
    `cooldown_steps`, in [1, `train_steps`], at most by 1.
    """

    def __init__(
        self, schedule: keras.optimizers.schedules.LearningRateSchedule, train_steps: int, cooldown_steps: int
    ):
        if not 1 <= cooldown_steps <= train_steps:
            raise ValueError(
                f"Expected 1 to {train_steps} updates of a cooldown. Received: cooldown_steps={cooldown_steps}."
            )
        self.schedule, self.train_steps, self.cooldown_steps = schedule, train_steps, cooldown_steps

    def __call__(self, step):
        left = self.train_steps - ops.cast(step, "float32")
        return self.schedule(step) * ops.clip(left / self.cooldown_steps, 0.0, 1.0)

    def get_config(self):
        return vars(self) | {"schedule": keras.saving.serialize_keras_object(self.schedule)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "schedule": keras.saving.deserialize_keras_object(config["schedule"])})


@keras.saving.register_keras_serializable("t2t_keras")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A constant learning rate after a linear warm-up of 1 update or more; the last one has the whole rate."""

    def __init__(self, rate: float, warmup_steps: int):
        self.rate, self.warmup_steps = rate, warmup_steps

    def __call__(self, step):
        return self.rate * ops.minimum((ops.cast(step, "float32") + 1.0) / self.warmup_steps, 1.0)

    def get_config(self):
        return dict(vars(self))


def schedule_of(d_model: int, config: TrainConfig) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate schedule of a run."""
    if config.learning_rate:
        schedule = WarmUp(config.learning_rate, config.warmup_steps)
    else:
        schedule = TransformerSchedule(d_model, config.warmup_steps, config.learning_rate_factor)
    return Cooldown(schedule, config.train_steps, config.cooldown) if config.cooldown else schedule


@keras.saving.register_keras_serializable("t2t_keras")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` that updates a weight in one operation. On a CPU, Keras's ten take several times as
    long.
    """

    def factors(self, applied=True) -> tuple:
        """Returns β1ᵗ and β2ᵗ of update t, which is counted from 1, then β1, β2 and ε, as float32 tensors. If not
        `applied`, [] boolean, β1 and β2 are 1: with them and a learning rate of 0, a finite gradient changes nothing.
        """
        step = tf.cast(tf.convert_to_tensor(self.iterations), tf.float32) + 1.0
        beta_1, beta_2, epsilon = (tf.constant(value, tf.float32) for value in (self.beta_1, self.beta_2, self.epsilon))
        return beta_1**step, beta_2**step, *(tf.where(applied, beta, 1.0) for beta in (beta_1, beta_2)), epsilon

    def update_step(self, gradient, variable, learning_rate, *factors) -> None:
        """Updates a weight; see `keras.optimizers.Optimizer`. `factors` are those of this update, if they are known."""
        if self.amsgrad or keras.backend.standardize_dtype(variable.dtype) != "float32":
            super().update_step(gradient, variable, learning_rate)
            return
        beta1_power, beta2_power, beta_1, beta_2, epsilon = factors or self.factors()
        mean, variance = (average.value for average in adam_averages(self, variable))
        tf.raw_ops.ResourceApplyAdam(
            var=_local(variable).handle,
            m=mean.handle,
            v=variance.handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=learning_rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=epsilon,
            grad=gradient,
        )

    @property
    def averages(self) -> dict:
        """With `use_ema`, the exponential moving averages of the weights, by the path of the weight."""
        return moving_averages(self) if self.use_ema else {}

    def average_share(self, applied=True):
        """Returns the share of a weight in its new moving average, [] float32: 1 in the first update of a run, and 0 if
        an update is not `applied`, [] boolean.
        """
        share = tf.where(tf.convert_to_tensor(self.iterations) > 0, 1 - self.ema_momentum, 1.0)
        return tf.where(applied, share, 0.0)

    def update_average(self, variable, share) -> None:
        """Updates the moving average of a weight after `update_step`; `share` is the `average_share` of this update."""
        weight, average = _local(variable), moving_average(self, variable).value
        before, now = (tf.raw_ops.ReadVariableOp(resource=each.handle, dtype=tf.float32) for each in (average, weight))
        tf.raw_ops.AssignAddVariableOp(resource=average.handle, value=share * (now - before))


def _local(variable):
    """Returns the TensorFlow variable of a weight. Under a strategy, `variable` is the copy of one device, and so are
    the handles then.
    """
    return variable.value if isinstance(variable, keras.Variable) else variable


def adam(schedule, ema_decay: float = 0.0) -> Adam:
    """Returns Adam with the paper's β1, β2 and ε (section 5.3). With an `ema_decay` of 0, no average is kept."""
    return Adam(
        schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9, use_ema=ema_decay > 0, ema_momentum=ema_decay, name="adam"
    )
