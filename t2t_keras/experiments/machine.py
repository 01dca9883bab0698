"""The machine that a measurement runs on, and the memory that a process needs. Memory: Linux only."""

import os
import pathlib


def cpu() -> dict:
    """Returns `cpu`, the name of the processor; `cores`, how many of them this process may use; and `flags`, its vector extensions."""
    file = pathlib.Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    fields = {name.strip(): value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
    known = set(fields.get("flags", "").split())
    wanted = ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": fields.get("model name", "unknown"), "cores": cores, "flags": [name for name in wanted if name in known]}


def _status(field: str) -> int:
    """Returns a field of the memory statistics of this process, in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"Expected {field} in /proc/self/status, as Linux has it. Received none.")


def resident_memory() -> int:
    """Returns the resident memory of this process, in bytes."""
    return _status("VmRSS")


def peak_memory() -> int:
    """Returns the largest resident memory of this process so far, in bytes."""
    return _status("VmHWM")
