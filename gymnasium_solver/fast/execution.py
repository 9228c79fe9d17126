"""How the work of a learner is executed: torch, recorded NumPy programs, compiled C or CUDA graphs.

    how = Execution("auto", torch.device("cpu"), planned_work(config))
    how.records, how.compiles           # of gradients
    how.records_acting                  # of the acting network

The choice depends on the config and the machine only, never on timing, on the state of the cache
of compiled programs or on chance: a run that is repeated computes the same bits.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.fast.native.build import can_compile, prefer_compiled, start_compiling

if TYPE_CHECKING:
    import torch

# Up to these sizes recorded gradients are faster than torch on a CPU.
WIDEST_RECORDED, LARGEST_RECORDED_BATCH = 512, 4096
# Seconds that a compiled program saves compared with NumPy: in a gradient of a small network, twice
# that with this many multiplications in its largest product, and in one act of all environments.
GRADIENT_GAIN, LARGE_PRODUCT, ACT_GAIN = 0.25e-3, 1e6, 0.1e-3
# Compile if this many seconds are saved. With an empty cache compiling delays a run by 0.5 to
# 0.8 s, with a warm one not at all, and which it is may not matter: half of the delay is the most
# that is lost in either case.
WORTH_COMPILING = 0.25
# In up to this many updates, each of this many samples, the C compiler would take longer than what
# it saves in metrics.
FEW_UPDATES, FEW_SAMPLES = 200, 256
# Gradient steps from which fusing kernels on a GPU, which takes about half a minute, is worth it.
WORTH_FUSING = 100_000
# With a recurrent core a gradient is many small operations: it saves about 3 ms (GRU, sequences of
# 16), and its program takes a few times longer to compile.
RECURRENT_GAIN = 5

FORMS = {
    "compiled": "compiled C programs",
    "recorded": "recorded NumPy programs",
    "torch": "in torch",
}


class Work(NamedTuple):
    """What there is to compute in a run."""

    samples: int  # samples of a gradient step
    width: int  # units of the widest layer
    steps: float  # gradient steps of the whole run
    acts: float = 0  # acts of the whole run, each for all environments
    is_recurrent: bool = False
    has_images: bool = False
    is_stateful: bool = False  # a layer changes state when it is used, which only torch does

    @property
    def is_worth_compiling(self) -> bool:
        gain = GRADIENT_GAIN * (1 + self.samples * self.width**2 / LARGE_PRODUCT)
        gain *= RECURRENT_GAIN if self.is_recurrent else 1
        return bool(self.steps * gain + self.acts * ACT_GAIN > WORTH_COMPILING)

    def is_worth_metrics(self, rows: int, samples: int) -> bool:
        """Whether compiling the metrics saves time: in a run of many updates, or of updates with
        many samples. `rows`, `samples`: of one update."""
        gain = max(1, samples / FEW_SAMPLES) * (RECURRENT_GAIN if self.is_recurrent else 1)
        return self.acts / rows * gain > FEW_UPDATES


def planned_work(config: Any) -> Work:
    """What the config of a learner asks for."""
    steps = float("inf") if config.max_env_steps is None else config.max_env_steps
    return Work(
        samples=config.gradient_samples,
        width=config.widest_layer,
        steps=steps * config.gradients_per_env_step,
        acts=steps / int(config.n_envs),
        is_recurrent=getattr(config, "recurrent", None) is not None,
    )


def compile_ahead(config: Any) -> None:
    """Start the C compiler on what all programs share, if a run of this config is likely to compile
    any: before torch is imported, which takes as long. Without gradients nothing is compiled."""
    if not isinstance(config, LearnerConfig):
        return
    is_wanted = config.compile == "native" or (
        config.compile in ("auto", True) and planned_work(config).is_worth_compiling
    )
    if is_wanted and not config.device.startswith("cuda"):
        start_compiling()


class Execution:
    def __init__(self, setting: str | bool, device: "torch.device", work: Work):
        """`setting`: the field `compile` of the config."""
        self.setting, self.device, self.work = setting, device, work
        self.records = self._records()
        self.wants_compiled = self._wants_compiled()
        self.compiles = self.wants_compiled and can_compile()
        """Gradients and forward passes should be compiled, and can be here."""
        if self.compiles:
            prefer_compiled()
            start_compiling()

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
        return self.setting == "native" or self.work.is_worth_compiling

    @property
    def fuses(self) -> bool:
        """Fuse the kernels of gradients on a GPU: in a run that is long enough to be worth it."""
        if self.device.type != "cuda" or self.work.has_images:
            return False
        is_long = self.work.steps >= WORTH_FUSING
        return self.setting == "fused" or (self.setting == "auto" and is_long)

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
