"""The cost of training: operations counted from shapes, and the estimate of Table 2 from the time."""

import math

from t2t_keras.training.state import TrainState


def estimate(seconds: float, devices: int, device_tflops: float) -> float:
    """Estimates the operations of a training as the paper does (section 6.1): time × devices × sustained operations per
    second.

    Args:
        seconds: training time.
        devices: number of devices.
        device_tflops: sustained tera-operations per second of one device; the paper has 9.5 for a P100.
    """
    return seconds * devices * device_tflops * 1e12


def summary(state: TrainState, devices: int, device_tflops: float, unit: str, frozen: bool = False) -> str:
    """Describes the cost of a run in one or two sentences.

    Args:
        state: the state at the end of the run.
        devices: number of devices.
        device_tflops: see `estimate`; 0 if unknown.
        unit: of the task.
        frozen: whether parts of the model are not trained: not all gradients that are counted are then computed.
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
