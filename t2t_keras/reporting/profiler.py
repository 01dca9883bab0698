"""Profiles some updates of a run with TensorFlow's profiler, for TensorBoard's PROFILE tab."""

import contextlib
import pathlib
from collections.abc import Iterator

import tensorflow as tf

from t2t_keras.system.log import logger


class Profiler(contextlib.AbstractContextManager):
    """Profiles the updates `steps`, "FIRST,LAST", into TensorBoard's folder; leaving it as a context manager ends a
    profile that is under way. Empty `steps` profile none.

    A run that resumes among the updates is profiled from there. A profile that cannot be made is reported with a
    warning, and training continues.
    """

    def __init__(self, folder: pathlib.Path, steps: str):
        self._folder, self._running, self._done = folder, False, 0
        self._profiles = folder / "plugins/profile"  # Where TensorFlow writes them.
        self._first, self._last = map(int, steps.split(",")) if steps else (0, 0)
        self._due = bool(steps)

    def __exit__(self, *_) -> None:
        self._stop()

    @contextlib.contextmanager
    def update(self, step: int) -> Iterator[None]:
        """Surrounds an update."""
        if self._due and step >= self._first:
            self._due = False
            if step <= self._last:
                self._start()
            elif not self._profiles.exists():  # A run that resumes after its profile has it.
                logger.warning(
                    f"`profile_steps={self._first},{self._last}` profiles nothing: the run is at update {step:,}."
                )
        if not self._running:
            yield
            return
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            yield
        self._done = step
        if step >= self._last:
            self._stop()

    def _start(self) -> None:
        try:
            tf.profiler.experimental.start(str(self._folder))
            self._running = True
        except (tf.errors.OpError, OSError) as error:
            logger.warning(f"Could not profile: {getattr(error, 'message', error)}. Training continues.")

    def _stop(self) -> None:
        if not self._running:
            return
        self._running = False
        try:
            tf.profiler.experimental.stop()
            logger.info(f"Wrote a profile of updates up to {self._done:,} to {self._profiles}.")
        except (tf.errors.OpError, OSError) as error:
            logger.warning(f"Could not write the profile: {getattr(error, 'message', error)}. Training continues.")
