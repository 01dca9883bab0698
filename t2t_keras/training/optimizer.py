"""Adam and its learning rate schedule (section 5.3): lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of equation 3: it grows linearly for `warmup_steps` updates, then decays with the inverse square root of the step.

    Keras counts finished updates, so `schedule(0)` is the paper's rate at step 1.

    Args:
        d_model: width of the model.
        warmup_steps: number of warm-up updates; the rate is highest after them.
        factor: multiplies the rate; the paper's is 1.

    Raises:
        ValueError: `d_model` or `warmup_steps` is not positive.
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, factor: float = 1.0):
        if d_model < 1 or warmup_steps < 1:
            raise ValueError(f"Expected positive numbers. Received: d_model={d_model}, warmup_steps={warmup_steps}.")
        self.d_model, self.warmup_steps, self.factor = d_model, warmup_steps, factor

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        return self.factor * self.d_model**-0.5 * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "factor": self.factor}


def adam(schedule) -> keras.optimizers.Adam:
    """Returns Adam with the paper's β1, β2 and ε (section 5.3)."""
    return keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9, name="adam")
