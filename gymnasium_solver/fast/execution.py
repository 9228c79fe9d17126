"""How the work of a learner is executed: torch, recorded NumPy programs, compiled C or CUDA graphs.

    how = Execution("auto", torch.device("cpu"), Work(samples=64, width=64, steps=4_000))
    how.records, how.compiles           # of gradients
    how.records_acting                  # of the acting network

The choice depends on the config and the machine only, never on timing, on the state of the cache
of compiled programs or on chance: a run that is repeated computes the same bits.
"""

from typing import NamedTuple

import torch

from gymnasium_solver.fast.native.build import can_compile, prefer_compiled

# Up to these sizes recorded gradients are faster than torch on a CPU.
WIDEST_RECORDED, LARGEST_RECORDED_BATCH = 512, 4096
# Compiling takes about a second. A gradient of a small net saves about 0.2 ms, and one with this
# many multiplications in its largest product twice that.
WORTH_COMPILING, LARGE_PRODUCT = 8_000, 2e6
# With a recurrent core a gradient is many small operations: it saves about 3 ms (GRU, sequences of
# 16), while compiling takes 3 s.
RECURRENT_GAIN = 5

FORMS = {
    "compiled": "compiled C programs",
    "recorded": "recorded NumPy programs",
    "torch": "in torch",
}


class Work(NamedTuple):
    """What there is to compute in a run."""

    samples: int
    """Samples of a gradient step."""
    width: int
    """Units of the widest layer."""
    steps: float
    """Gradient steps of the whole run."""
    is_recurrent: bool = False
    has_images: bool = False
    is_stateful: bool = False
    """A layer changes state when it is used, which only torch does."""


class Execution:
    def __init__(self, setting: str | bool, device: torch.device, work: Work):
        """`setting`: the field `compile` of the config."""
        self.setting, self.device, self.work = setting, device, work
        self.records = self._records()
        self.wants_compiled = self._wants_compiled()
        self.compiles = self.wants_compiled and can_compile()
        """Gradients and forward passes should be compiled, and can be here."""
        if self.compiles:
            prefer_compiled()

    def _records(self) -> bool:
        """Gradients are recorded: always on a GPU, for small networks on a CPU."""
        work, is_cpu = self.work, self.device.type == "cpu"
        if work.is_stateful:
            return False
        if work.has_images and is_cpu:
            return False  # convolutions are compute-bound, so torch is as fast
        if self.setting != "auto":
            return bool(self.setting)  # native and numpy are forms of it
        is_small = work.width <= WIDEST_RECORDED and work.samples <= LARGEST_RECORDED_BATCH
        return self.device.type == "cuda" or (is_small and is_cpu)

    def _wants_compiled(self) -> bool:
        """Gradients should be compiled C programs: if they are recorded on a CPU, and for `auto` if
        the run is long enough to be worth it."""
        if self.device.type != "cpu" or not self.records or self.setting == "numpy":
            return False
        if self.setting == "native":
            return True
        work = self.work
        size = 1 + work.samples * work.width**2 / LARGE_PRODUCT
        size *= RECURRENT_GAIN if work.is_recurrent else 1
        return bool(work.steps * size > WORTH_COMPILING)

    @property
    def _has_program(self) -> bool:
        """The acting network can be a program."""
        return not self.work.has_images and not self.work.is_stateful

    @property
    def records_acting(self) -> bool:
        """Record the acting network: on a CPU, without a CNN, for any batch size."""
        return self.device.type == "cpu" and self._has_program

    @property
    def acts_on_host(self) -> bool:
        """Act from a copy on the CPU, for few observations at a time: a network on a GPU that is
        not a CNN."""
        return self.device.type == "cuda" and self._has_program and bool(self.setting)

    @property
    def notes(self) -> list[str]:
        """What the user should know."""
        if not self.wants_compiled or self.compiles:
            return []
        return [
            "updates: no C compiler was found ($CC, cc, gcc, clang), so they run as NumPy "
            "programs, at about a third of the speed for small networks"
        ]

    def describe(self, modes: set[str | None], planned: set[str]) -> str:
        """How gradients are computed, as a short text. `planned`: of those whose mode is decided at
        the first update."""
        if modes == {"torch"}:
            return "plain torch, as configured" if self.setting is False else "plain torch"
        if "graph" in modes:
            return "CUDA graphs"
        forms = [form for form in FORMS if form in modes | planned]
        return ", in part ".join(FORMS[form] for form in forms)
