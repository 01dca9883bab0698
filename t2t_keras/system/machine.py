"""The machine that a process runs on: its processor, and what the process may use of cores and memory (on Linux)."""

import contextlib
import math
import os
import pathlib
import re
import resource
import sys

_ROOT = pathlib.Path("/")  # Has `proc` and `sys`.
_CPU, _STATUS = pathlib.Path("/proc/cpuinfo"), pathlib.Path("/proc/self/status")


def _groups(controller: str, root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders of the control groups that limit this process, as of a container, a service of systemd or a
    job of Slurm: those of /proc/self/cgroup and all above them. Version 1 has folders for each controller, `cpu` or
    `memory`; version 2 has one for all. Folders may be missing.
    """
    mounts, folders = root / "sys/fs/cgroup", []
    lines = ["0::/", f"1:{controller}:/"]  # A container may see its own group as the root.
    with contextlib.suppress(OSError):
        lines += (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group = pathlib.PurePosixPath(path.lstrip("/"))
        names = [".", "unified"] if not controllers else [controllers, controller]
        if (controllers and controller not in controllers.split(",")) or ".." in group.parts:
            continue
        folders += [mounts / name / part for name in names for part in (group, *group.parents)]
    return list(dict.fromkeys(folders))


def _number(path: pathlib.Path, field: str = "") -> float:
    """Returns the first number of a file, or of the line that begins with a field; infinity if there is none, as for
    "max", and for -1, which are no limits.
    """
    found = re.search(rf"^{field}\s*(\d+)", path.read_text(), re.MULTILINE)
    return float(found[1]) if found else math.inf


def cores() -> int:
    """Returns how many cores this process may use: those of its affinity or, in a control group, as many as it has time
    for.
    """
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    times = [number]
    for folder in _groups("cpu", _ROOT):
        with contextlib.suppress(OSError):  # Microseconds of all cores, in a period of so many microseconds.
            times.append(_number(folder / "cpu.max") / _number(folder / "cpu.max", r"(?:max|\d+)\s"))
        with contextlib.suppress(OSError):
            times.append(_number(folder / "cpu.cfs_quota_us") / _number(folder / "cpu.cfs_period_us"))
    return max(int(min(times)), 1)


def memory() -> int:
    """Returns how much memory this process may use, in bytes: that of the machine or, in a control group, its limit."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder in _groups("memory", _ROOT):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError):
                sizes.append(_number(folder / name))
    return int(min(sizes))


def free_memory(root: pathlib.Path = _ROOT) -> float:
    """Returns the memory in bytes that this process can still take, of the machine and of its control groups; infinity
    where the system, unlike Linux, does not say it. `root` is the folder that has `proc` and `sys`.
    """
    free = [math.inf]
    with contextlib.suppress(OSError):
        free.append(1024 * _number(root / "proc/meminfo", "MemAvailable:"))
    for folder in _groups("memory", root):
        for limit, usage, cache in (
            ("memory.max", "memory.current", "inactive_file "),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
        ):
            with contextlib.suppress(OSError):
                used = _number(folder / usage) - _number(folder / "memory.stat", cache)
                free.append(_number(folder / limit) - used)
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
    raise ValueError(f"{_STATUS} has no {field}, unlike on Linux.")


def resident_memory() -> int:
    """Returns the resident memory of this process, in bytes."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Returns the largest resident memory of this process so far, in bytes; where the system does not say it, as
    without /proc, also that of the process which started it, if larger.
    """
    try:
        return _status("VmHWM")
    except (OSError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
