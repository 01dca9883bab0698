"""What a process may use of its machine: its affinity, or the limits of its container."""

import os

import pytest

from t2t_keras import machine


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, 6), ("max 100000", 6), ("400000 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("3200000 100000", 6)],
)
def test_cores_are_those_of_the_affinity_and_of_the_time_that_a_container_has(monkeypatch, tmp_path, limit, expected):
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    if limit:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert machine.cores() == expected


@pytest.mark.parametrize(("limit", "expected"), [(None, 2**34), ("max", 2**34), (str(2**31), 2**31), (str(2**40), 2**34)])
def test_memory_is_that_of_the_machine_or_the_limit_of_a_container(monkeypatch, tmp_path, limit, expected):
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**22, "SC_PAGE_SIZE": 2**12}.get)
    if limit:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert machine.memory() == expected


def test_the_peak_is_at_least_what_is_resident():
    assert 0 < machine.resident_memory() <= machine.peak_memory() < machine.memory()
