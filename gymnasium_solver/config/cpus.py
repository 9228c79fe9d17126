"""How many CPUs a process may use."""

import os

CPUS = "GSOLVE_CPUS"
"""Environment variable: the CPUs of this process where several trainings share a machine."""


def cpu_count() -> int:
    """CPUs that this process may use: in a container fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_share() -> int:
    """CPUs for threads: all that this process may use, or fewer where $GSOLVE_CPUS says so."""
    given = os.environ.get(CPUS, "")
    limit = int(given) if given.isdecimal() else 0
    return min(cpu_count(), limit) if limit else cpu_count()
