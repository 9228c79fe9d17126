"""Base of the learners: random streams, schedules, optimisers and gradients.

It contains no loss and no update. A learner sets `net` and `policy` and adds its optimisers and
gradients; learner_state.py saves and restores them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.intrinsic import IntrinsicReward
from gymnasium_solver.algos.learner_state import LearnerState
from gymnasium_solver.algos.monitor import Monitor
from gymnasium_solver.config.schedule import Schedule, at_start, marks_of
from gymnasium_solver.config.schema import ActorCriticFields, LearnerConfig
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.fast.compiled import CompiledForward
from gymnasium_solver.fast.native.build import can_compile, prefer_compiled
from gymnasium_solver.fast.optimizer import FLAT_KINDS, FlatOptimizer, Optimizer
from gymnasium_solver.fast.recorded import LossGradient, TreeLoss, on_device
from gymnasium_solver.fast.torch_optimizer import TorchOptimizer
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.nets.init import reinitialise
from gymnasium_solver.nets.network import network_for
from gymnasium_solver.nets.normalizer import RewardNormalizer
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.spaces.action_dists import chosen_kind
from gymnasium_solver.spaces.goals import GoalFunctions
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.timing import OFF, Timer

LARGE_ROLLOUT_BYTES = 16 * 2**20  # larger ones are reported before training, images always
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


class Learner(LearnerState):
    has_replay = False
    saves_replay = False
    takes_stale = False
    """Whether it may learn from rollouts of an earlier policy, as collectors make them."""
    memory: Memory | None = None
    demonstrations: Demonstrations | None = None

    def __init__(
        self,
        config: LearnerConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        self.config: Any = config
        self.observation_space, self.action_space = observation_space, action_space
        self.actions = chosen_kind(
            action_space,
            getattr(config, "action_dist", "auto"),
            log_std_init=getattr(config, "log_std_init", 0.0),
            temperature=getattr(config, "gumbel_temperature", 1.0),
            sde=isinstance(config, ActorCriticFields) and config.sde,
        )
        self.device = torch.device(device)
        self.timer: Timer = OFF
        init_seed, act_seed, learn_seed = np.random.SeedSequence(seed).spawn(3)
        self.generator = torch.Generator().manual_seed(int(init_seed.generate_state(1)[0]))
        self.act_rng = np.random.default_rng(act_seed)
        self.rng = np.random.default_rng(learn_seed)
        self.net: Any
        self.policy: Policy
        self.optimizers: dict[str, Optimizer] = {}
        self.gradients: dict[str, LossGradient] = {}
        self.forwards: dict[str, CompiledForward] = {}
        self.n_updates = 0  # gradient steps, or rounds of them; the policy's version
        self.reward_normalizer = RewardNormalizer(
            int(config.n_envs), at_start(config.gamma), config.clip_reward
        )
        self.schedules = {
            name: value
            for name in type(config).model_fields
            if isinstance(value := getattr(config, name), Schedule)
        }
        self._written_config = config
        self._followed: dict[str, list[str]] = {}  # settings of optimisers that are schedules
        markers = {
            name: mark
            for name, info in type(config).model_fields.items()
            for mark in marks_of(info)
            if name in self.schedules
        }
        self._changing = list(markers)
        self._whole = [name for name, mark in markers.items() if mark.whole]
        self.network = network_for(config, observation_space)
        self.clock = (0, 1)  # env steps before the rollout, and of the whole run
        self._monitor = Monitor(list(config.monitor)) if config.monitor else None
        self.intrinsic: IntrinsicReward | None = None
        if config.intrinsic is not None:
            # A generator of its own: the networks start with the same weights as without it.
            own = torch.Generator().manual_seed(int(init_seed.generate_state(2)[1]))
            self.intrinsic = IntrinsicReward(
                config.intrinsic,
                observation_space,
                self.network,
                int(config.n_envs),
                generator=own,
                rng=self.rng,
                device=self.device,
                record=self.may_record,
            )
        self.notes: list[str] = []
        self.wants_details = False
        if self.compiles:
            prefer_compiled()

    def ignore(self, *names: str) -> None:
        """Drop scheduled fields that this learner does not read, so that they are not reported."""
        for name in names:
            self.schedules.pop(name, None)

    @property
    def encoder(self) -> ObsEncoder:
        encoder: ObsEncoder = self.net.encoder
        return encoder

    # -- parts ------------------------------------------------------------------------------

    def add_optimizer(self, name: str, module: nn.Module, **options: Any) -> Optimizer:
        """Create the configured optimiser for a module; it is saved with the learner."""
        cfg = self.config
        if cfg.init != "auto" or cfg.zero_last:
            reinitialise(module, cfg.init, cfg.init_gain, cfg.zero_last, self.generator)
        settings: dict[str, Any] = {
            "eps": cfg.adam_eps,
            "weight_decay": cfg.weight_decay,
            "max_grad_norm": cfg.max_grad_norm,
            "max_grad_value": cfg.max_grad_value,
            "beta1": cfg.adam_beta1,
            "beta2": cfg.adam_beta2,
            "momentum": cfg.momentum,
        }
        settings |= options
        follows = [key for key, value in settings.items() if isinstance(value, Schedule)]
        self._followed[name] = follows
        settings |= {key: at_start(settings[key]) for key in follows}
        graph = not follows  # a CUDA graph would keep the first values
        if cfg.optimizer in FLAT_KINDS:
            made: Optimizer = FlatOptimizer(module, cfg.optimizer, graph=graph, **settings)
        else:
            shared = ("weight_decay", "max_grad_norm", "max_grad_value")
            made = TorchOptimizer(
                module,
                cfg.optimizer,
                cfg.optimizer_kwargs,
                **{key: settings[key] for key in shared},
            )
        self.optimizers[name] = made
        return made

    def add_gradient(
        self,
        name: str,
        loss: TreeLoss,
        optimizer: Optimizer,
        constants: Sequence[Tensor] = (),
        record: bool = True,
    ) -> LossGradient:
        """Gradient of a loss with respect to the optimiser's parameters. Its mode is saved.

        `constants`: other tensors that the loss reads and that may change in place. `record`: False
        if the loss cannot be recorded because its control flow depends on data.
        """
        # An optimiser steps in the form of its first gradient, which comes before every step.
        is_first = all(own.params is not optimizer.params for own in self.gradients.values())
        gradient = LossGradient(
            loss,
            optimizer.params,
            record=record and self.may_record,
            constants=[*self.encoder.buffers(), *constants],
            compile=self.compiles,
            optimizer=optimizer if isinstance(optimizer, FlatOptimizer) and is_first else None,
        )
        self.gradients[name] = gradient
        return gradient

    # -- acting -----------------------------------------------------------------------------

    def act(
        self,
        obs: Any,
        greedy: bool = True,
        mask: Any = None,
        is_first: Any = None,
        as_trained: bool = False,
    ) -> Any:
        """The env's action for one observation or a batch: the greedy one, or a sample.

        A loaded agent applies the run's observation wrappers; `as_trained`: `obs` is as the policy
        saw it in training, with the wrappers applied."""
        return self.policy.act(obs, greedy, mask, is_first, as_trained)

    def reset(self) -> None:
        self.policy.reset()

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        """Take the env's goal functions, if this learner replaces goals."""

    def start_training(self) -> None:
        """Validate the setup before training and collect notes for the user."""
        self.note_compiler()
        rows, n_envs = self.config.rollout_rows, self.config.n_envs
        estimate = Rollout.estimate_bytes(
            rows, n_envs, self.observation_space, self.actions, n_outputs=self.policy.n_outputs
        )
        if self.network.cnns or estimate >= LARGE_ROLLOUT_BYTES:
            # The update copies the valid rows, so they exist twice for a while.
            self.notes.append(
                f"rollout: {rows:,} rows of {n_envs} envs take {estimate / 2**20:,.1f} MB, twice "
                "that during an update"
            )

    def note_compiler(self) -> None:
        if self.wants_compiled and not can_compile():
            self.notes.append(
                "updates: no C compiler was found ($CC, cc, gcc, clang), so they run as NumPy "
                "programs, at about a third of the speed for small networks"
            )

    def set_clock(self, env_steps: int, total_steps: int) -> None:
        """Read numbers that are given as schedules at this clock; called before each rollout."""
        self.clock = (env_steps, total_steps)
        if self._monitor is not None and self.wants_details:
            self._monitor.begin(self.optimizers)
        if not self._changing:
            return
        now = {}
        for name in self._changing:
            value = self.schedules[name].at(env_steps, total_steps)
            now[name] = round(value) if name in self._whole else value
        self.config = self._written_config.model_copy(update=now)
        self.reward_normalizer.gamma = self.config.gamma
        for optimizer_name, keys in self._followed.items():
            for key in keys:
                setattr(self.optimizers[optimizer_name], key, now[key])

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        """Set the exploration parameters; called before each rollout."""

    def open_memory(self, has_masks: bool) -> Memory:
        raise RunError(f"{self.config.algo_id} has no replay buffer to load.")

    def adopt_memory(self, memory: Memory) -> None:
        """Continue with the replay buffer of an agent whose config differed."""

    # -- used by updates --------------------------------------------------------------------

    @property
    def may_record(self) -> bool:
        """Whether to record gradients (fast/recorded.py): always on a GPU, for small nets on a
        CPU."""
        cfg = self.config
        if self.network.needs_torch:
            return False
        if self.network.cnns and self.device.type == "cpu":
            return False  # convolutions are compute-bound, so torch is as fast
        if cfg.compile != "auto":
            return bool(cfg.compile)  # native and numpy are forms of it
        if self.device.type == "cuda":
            return True
        is_small = (
            cfg.widest_layer <= WIDEST_RECORDED and cfg.gradient_samples <= LARGEST_RECORDED_BATCH
        )
        return is_small and self.device.type == "cpu"

    @property
    def wants_compiled(self) -> bool:
        """Whether gradients should be compiled C programs: if they are recorded on a CPU, and for
        `auto` if the run is long enough to be worth it. Depends on the config alone."""
        cfg = self.config
        if self.device.type != "cpu" or not self.may_record or cfg.compile == "numpy":
            return False
        if cfg.compile == "native":
            return True
        samples = cfg.gradient_samples
        per_step = at_start(getattr(cfg, "n_epochs", 1)) / samples
        if hasattr(cfg, "updates_per_step"):
            per_step = at_start(cfg.updates_per_step)
        size = 1 + samples * cfg.widest_layer**2 / LARGE_PRODUCT
        size *= RECURRENT_GAIN if getattr(cfg, "recurrent", None) else 1
        steps = math.inf if cfg.max_env_steps is None else cfg.max_env_steps
        return bool(steps * per_step * size > WORTH_COMPILING)

    @property
    def compiles(self) -> bool:
        """Whether gradients and forward passes should be compiled, and can be here."""
        return self.wants_compiled and can_compile()

    @property
    def may_record_acting(self) -> bool:
        """Whether to record the acting network: on a CPU, without a CNN, for any batch size."""
        return self.device.type == "cpu" and not self.network.cnns and not self.network.needs_torch

    @property
    def may_act_on_host(self) -> bool:
        """Whether to act from a copy on the CPU, for few observations at a time: of a network on a
        GPU that is no CNN."""
        has_program = not self.network.cnns and not self.network.needs_torch
        return self.device.type == "cuda" and has_program and bool(self.config.compile)

    @property
    def update_mode(self) -> str:
        """How gradients are computed, as a short text for the user."""
        modes = {gradient.mode for gradient in self.gradients.values()}
        if modes == {"torch"}:
            return "plain torch, as configured" if self.config.compile is False else "plain torch"
        if "graph" in modes:
            return "CUDA graphs"
        # None: not decided before the first update.
        planned = {gradient.form for gradient in self.gradients.values() if gradient.mode is None}
        forms = [form for form in FORMS if form in modes | planned]
        return ", in part ".join(FORMS[form] for form in forms)

    def scheduled_values(self, env_steps: int, total_steps: int) -> dict[str, float]:
        """Current value of every scheduled field. `env_steps` is the count before the rollout."""
        return {name: s.at(env_steps, total_steps) for name, s in self.schedules.items()}

    @contextmanager
    def observing(self, rollout: Rollout) -> Iterator[None]:
        """Update the observation normaliser after the wrapped update.

        The first rollout is the exception: it updates the normaliser before, so that the first
        update does not train on raw observations.
        """
        encoder = self.encoder
        if not encoder.learns_moments:
            yield
            return
        is_first = not encoder.has_moments
        if is_first:
            encoder.observe(rollout.valid_obs())
        yield
        if not is_first:
            encoder.observe(rollout.valid_obs())

    def normalized_reward(self, rollout: Rollout) -> np.ndarray:
        """The rollout's rewards, normalised if configured, and the intrinsic ones."""
        reward = rollout.reward
        if self.config.scales_reward:
            if rollout.is_restart:
                self.reward_normalizer.restart()
            reward = self.reward_normalizer(reward, rollout.done, rollout.valid)
        if self.intrinsic is not None:
            reward = reward + self.intrinsic(rollout, *self.clock)
        return reward

    def take_details(self) -> bool:
        """Whether to report the metrics that cost time: once for each request of the loop."""
        wanted, self.wants_details = self.wants_details, False
        return wanted

    def to_device(self, array: np.ndarray) -> Tensor:
        return on_device(array, self.device)

    def side_metrics(self, rollout: Rollout) -> dict[str, float]:
        """Metrics of the last update, from this rollout, beside those it returned."""
        found = {} if self.intrinsic is None else self.intrinsic.metrics
        if self._monitor is None:
            return found
        shape = self.actions.shape
        n_actions = math.prod(shape) if shape else 0
        return found | self._monitor.measure(self.net, self.optimizers, rollout, n_actions)


def hp_metrics(hp: Mapping[str, float]) -> dict[str, float]:
    """Scheduled values as metrics."""
    return {f"hp/{name}": value for name, value in hp.items()}
