"""Applies a function to the parts of a corpus in several processes, with the results in the order of the parts.

Processes, because the Python between two operations of TensorFlow runs in one thread of a process at a time.
"""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool

from t2t_keras.system import machine

# A process of its own pays from so much text on, which takes as long as its start; and needs so much memory.
BYTES_PER_PROCESS, MEMORY_PER_PROCESS = 2**24, 2**30

_function: Callable  # Of a process that `ordered` has started.


def number(wanted: int, size: int) -> int:
    """Returns how many processes share the work on `size` bytes of text: the wanted number, or for 0 one on each core,
    but fewer if there is little text or memory.
    """
    return wanted or max(
        1, min(machine.cores(), size // BYTES_PER_PROCESS, int(min(machine.free_memory(), 2**62) // MEMORY_PER_PROCESS))
    )


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _set_up(pickled: bytes) -> None:
    """Begins a process. What it needs is unpickled when the thread watches, because that may import TensorFlow, which
    takes seconds.
    """
    global _function
    threading.Thread(target=_end_with_parent, daemon=True).start()
    make, arguments = pickle.loads(pickled)  # noqa: S301 - of the process that has started this one.
    _function = make(*arguments)


def _apply(item):
    return _function(item)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds back Ctrl-C inside a `with` block; processes that are started there never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ordered(make: Callable, arguments: tuple, items: Iterable, processes: int) -> Iterator:
    """Yields function(item) for each item, in the order of the items. Reads at most two items for each process ahead.
    Raises `OSError` if a process was killed or cannot start. With one process, the function runs in this one.

    `make(*arguments)` returns the function, and is called once in each process. `make` must be defined in a module, not
    in a script. Arguments, items and results are pickled.
    """
    if processes == 1:
        yield from map(make(*arguments), items)
        return
    others = set(multiprocessing.active_children())
    pool = concurrent.futures.ProcessPoolExecutor(
        processes,
        multiprocessing.get_context("spawn"),
        initializer=_set_up,
        initargs=(pickle.dumps((make, arguments)),),
    )
    pending = collections.deque()
    try:
        for item in items:
            with _uninterrupted():
                try:
                    pending.append(pool.submit(_apply, item))
                except OSError as error:
                    raise OSError(
                        f"Expected room for {processes} processes. Received: {error.strerror}. Give fewer `processes`."
                    ) from error
            if len(pending) == 2 * processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise OSError(
            f"Expected {processes} processes that share the work. Received: one that ended before it was done, as when "
            "memory is short. Give fewer `processes`, and run the same command again."
        ) from error
    except BaseException:  # Nobody waits for their work, and they may still be importing TensorFlow.
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
