"""What a process may use of its machine: its affinity, or the limits of its container."""

import math
import os
import types

import pytest

from t2t_keras.system import machine


@pytest.mark.parametrize(("limit", "expected"), [
    (None, 6), ("max 100000", 6), ("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1),
    ("3200000 100000", 6),
])  # fmt: skip
def test_cores_are_those_of_the_affinity_and_of_the_time_that_a_container_has(monkeypatch, tmp_path, limit, expected):
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", {0: set(range(6))}.get)  # 0 is this process.
    if limit:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{limit}\n")
    assert machine.cores() == expected


def test_without_an_affinity_cores_are_those_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity")
    for found, expected in ((5, 5), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda found=found: found)
        assert machine.cores() == expected


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 2**34), ("max", 2**34), (str(2**31), 2**31), (str(2**40), 2**34)]
)
def test_memory_is_that_of_the_machine_or_the_limit_of_a_container(monkeypatch, tmp_path, limit, expected):
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**22, "SC_PAGE_SIZE": 2**12}.get)
    if limit:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
    assert machine.memory() == expected


NESTED = {
    "slurm": ("0::/system.slice/job_7/step_0\n", {
        "cpu.max": "max 100000", "memory.max": "max",
        "system.slice/job_7/cpu.max": "300000 100000",
        "system.slice/job_7/memory.max": "3000", "system.slice/job_7/memory.current": "1200",
        "system.slice/job_7/memory.stat": "anon 1000\ninactive_file 200",
        "system.slice/job_7/step_0/cpu.max": "max 100000", "system.slice/job_7/step_0/memory.max": "max",
        "system.slice/other/cpu.max": "100000 100000", "system.slice/other/memory.max": "1",
    }),
    "version 1": ("12:memory:/slurm/job_7\n4:cpu,cpuacct:/slurm/job_7\n1:name=systemd:/cpu\n0::/\n", {
        "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
        "cpu/slurm/job_7/cpu.cfs_quota_us": "300000", "cpu/slurm/job_7/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/slurm/memory.limit_in_bytes": "3000", "memory/slurm/memory.usage_in_bytes": "1200",
        "memory/slurm/memory.stat": "inactive_file 1\ntotal_inactive_file 200",
    }),
    "a container of version 1": ("12:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n", {
        "cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "3000", "memory/memory.usage_in_bytes": "1200",
        "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200",
    }),
    "both": ("4:cpu:/\n0::/a/b\n", {
        "unified/a/cpu.max": "350000 100000", "memory/memory.limit_in_bytes": "3000",
        "memory/memory.usage_in_bytes": "1000", "memory/memory.stat": "total_inactive_file 0",
    }),
    "a group outside of the container": ("0::/../other\n", {
        "cpu.max": "300000 100000", "../other/cpu.max": "100000 100000", "memory.max": "3000", "memory.current": "1200",
        "memory.stat": "inactive_file 200",
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", NESTED)
def test_limits_are_those_of_the_groups_of_the_process_and_of_all_above_them(case, monkeypatch, tmp_path):
    """Story: only the root of version 2 was read, so that a job of Slurm took all cores and memory of the machine."""
    groups, files = NESTED[case]
    for name, content in {"../../../proc/self/cgroup": groups, **files}.items():
        path = (tmp_path / "sys/fs/cgroup" / name).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", {0: set(range(6))}.get)
    assert (machine.cores(), machine.memory(), machine.free_memory(tmp_path)) == (3, 3000, 2000)


@pytest.mark.parametrize(("files_", "expected"), [
    ({}, math.inf),
    ({"proc/meminfo": "MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:    5 kB\n"}, 5 * 1024),
    (
        {
            "memory.max": "4000\n", "memory.current": "3000\n",
            "memory.stat": "anon 2500\nactive_file 70\ninactive_file 500\n"
        },
        1500
    ),
    ({"memory.max": "max\n", "memory.current": "3000\n", "memory.stat": "inactive_file 500\n"}, 5 * 1024),
    ({"memory/memory.limit_in_bytes": "4000\n", "memory/memory.usage_in_bytes": "3000\n",
      "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 400\n"}, 1400),
])  # fmt: skip
def test_the_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path, files_, expected):
    files_ = {"proc/meminfo": "MemAvailable:    5 kB\n"} | files_ if files_ else {}
    for name, content in files_.items():
        path = tmp_path / (name if "proc" in name else f"sys/fs/cgroup/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert machine.free_memory(tmp_path) == expected
    assert 2**20 < machine.free_memory() < 2**50


def test_the_processor_has_its_name_and_the_vector_extensions_that_matter(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_CPU", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "cores", lambda: 3)
    assert machine.cpu() == {"cpu": "unknown", "cores": 3, "flags": []}
    text = "processor\t: 0\nmodel name\t: Some Processor: 2 GHz\nflags\t\t: fpu avx2 avx avx512f\n\nmodel name\n"
    (tmp_path / "cpuinfo").write_text(text)
    assert machine.cpu() == {"cpu": "Some Processor: 2 GHz", "cores": 3, "flags": ["avx", "avx2", "avx512f"]}


def test_the_system_counts_the_memory_of_a_process_in_kib(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_STATUS", tmp_path / "status")
    (tmp_path / "status").write_text("VmPeak:\t    9 kB\nVmHWM:\t    7 kB\nVmRSS:\t    5 kB\n")
    assert (machine.resident_memory(), machine.peak_memory()) == (5 * 1024, 7 * 1024)
    (tmp_path / "status").write_text("VmPeak:\t    9 kB\n")
    with pytest.raises(ValueError, match="status has no VmRSS, unlike on Linux"):
        machine.resident_memory()


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_the_peak_memory_is_known_without_proc(monkeypatch, tmp_path, platform, unit):
    """Story: no run could start there, for a line of its log."""
    monkeypatch.setattr(machine, "_STATUS", tmp_path / "absent")
    monkeypatch.setattr(machine.sys, "platform", platform)
    monkeypatch.setattr(machine.resource, "getrusage", lambda who: types.SimpleNamespace(ru_maxrss=7))
    assert machine.peak_memory() == 7 * unit


def test_the_peak_is_at_least_what_is_resident():
    assert 0 < machine.resident_memory() <= machine.peak_memory() < machine.memory()
