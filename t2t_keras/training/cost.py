"""The cost of training: operations counted from shapes, and the estimate of Table 2 from the time."""

import math

from t2t_keras.training.state import TrainState


def estimate(seconds: float, devices: int, device_tflops: float) -> float:
    """Estimates the operations of a training as the paper does (section 6.1): time × devices × sustained operations per
    second, of which the paper has 9.5 tera (`device_tflops`) for a P100.
    """
    return seconds * devices * device_tflops * 1e12


def summary(state: TrainState, devices: int, device_tflops: float, unit: str, frozen: bool = False) -> str:
    """Describes the cost of a run in one or two sentences, from the state at its end. `device_tflops` is that of
    `estimate`, or 0 if unknown, `unit` that of the task. With `frozen` parts, not all gradients that are counted are
    computed.
    """
    if math.isnan(state.flops):
        counted = (
            "The floating-point operations were not counted: a version of this package without the count started the "
            "run."
        )
    else:
        per_token, per_second = state.flops / max(state.target_tokens, 1), state.flops / max(state.seconds, 1e-9)
        counted = (
            f"Training took {'at most ' * frozen}{state.flops:.3g} floating-point operations, a third of them forward "
            f"and two thirds backward: {per_token:.3g} per {unit}, {per_second / 1e12:.3g} TFLOPS."
        )
    if not device_tflops:
        return counted
    return (
        f"{counted} The paper's estimate (Table 2): {state.seconds:,.0f} s × {devices} device(s) × {device_tflops:g} "
        f"TFLOPS = {estimate(state.seconds, devices, device_tflops):.3g} operations."
    )
