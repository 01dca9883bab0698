"""The machine that a process runs on: its processor, and what the process may use of cores and memory. Memory: Linux
only.
"""

import contextlib
import math
import os
import pathlib
import re

_CGROUP = pathlib.Path("/sys/fs/cgroup")  # Limits of a container.
_CPU, _STATUS = pathlib.Path("/proc/cpuinfo"), pathlib.Path("/proc/self/status")


def _limit(file: str) -> list[str]:
    """Returns the words of a file with limits of a container; none if there is no limit."""
    path = _CGROUP / file
    words = path.read_text().split() if path.exists() else []
    return [] if words[:1] == ["max"] else words


def cores() -> int:
    """Returns how many cores this process may use: those of its affinity or, in a container, as many as it has time
    for.
    """
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _limit("cpu.max")  # Microseconds of all cores, in a period of so many microseconds.
    return max(min(number, int(limit[0]) // int(limit[1])), 1) if limit else number


def memory() -> int:
    """Returns how much memory this process may use, in bytes: that of the machine or, in a container, its limit."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _limit("memory.max")
    return min(size, int(limit[0])) if limit else size


def free_memory(root: pathlib.Path = pathlib.Path("/")) -> float:
    """Returns the memory in bytes that this process can still take, of the machine and of its control group (as of a
    container); infinity where the system, unlike Linux, does not say it.

    Args:
        root: the folder that has `proc` and `sys`.
    """

    def number(path: str, field: str = "") -> float:
        found = re.search(rf"^{field}\D*(\d+)", (root / path).read_text(), re.MULTILINE)
        return float(found[1]) if found else math.inf  # "max": no limit.

    free = [math.inf]
    with contextlib.suppress(OSError):
        free.append(1024 * number("proc/meminfo", "MemAvailable:"))
    for folder, limit, usage, cache in (
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ):
        with contextlib.suppress(OSError):  # The group of a container is the root of its file system.
            used = number(f"{folder}/{usage}") - number(f"{folder}/memory.stat", cache)
            free.append(number(f"{folder}/{limit}") - used)
    return min(free)


def cpu() -> dict:
    """Returns `cpu`, the name of the processor; `cores`, how many of them this process may use; and `flags`, its vector
    extensions.
    """
    lines = _CPU.read_text().splitlines() if _CPU.exists() else []
    fields = {name.strip(): value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
    known = set(fields.get("flags", "").split())
    wanted = ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
    return {
        "cpu": fields.get("model name", "unknown"),
        "cores": cores(),
        "flags": [name for name in wanted if name in known],
    }


def _status(field: str) -> int:
    """Returns a field of the memory statistics of this process, in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"Expected {field} in {_STATUS}, as Linux has it. Received none.")


def resident_memory() -> int:
    """Returns the resident memory of this process, in bytes."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Returns the largest resident memory of this process so far, in bytes."""
    return _status("VmHWM")
