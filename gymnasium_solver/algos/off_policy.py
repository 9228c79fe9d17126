"""Base of the learners with a replay buffer: update scheduling and target networks.

An algorithm implements `learn`, one gradient step on one batch. `update` stores the rollout,
computes how many gradient steps are due, and calls `learn` for each of them.

`updates_per_step` is the ratio of gradient steps to env steps and means the same for one env and
for a hundred. Due updates are counted from env steps; fractions carry over.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.agent import Snapshot, Tensors
from gymnasium_solver.algos.configs.shared import OffPolicyConfig
from gymnasium_solver.algos.device_replay import DeviceReplay, Request, can_copy
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.config.schedule import (
    at_start,
)
from gymnasium_solver.data.frame_stacks import FRAME_CHANNELS
from gymnasium_solver.data.hindsight import Hindsight, with_achieved_goals
from gymnasium_solver.data.memory import Draw, Memory, Sample
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.graphed_step import CapturedError, GraphedStep
from gymnasium_solver.fast.optimizer import FLAT_KINDS, Optimizer, flatten_parameters, move_target
from gymnasium_solver.spaces.goals import GoalFunctions, check_goal_space
from gymnasium_solver.spaces.observations import Space, part_spaces
from gymnasium_solver.tree import map_tree

SMALL_REPLAY_BYTES = 512 * 2**20
GPU_SHARE = 0.5  # of the GPU's free memory, for a copy of the replay buffer
STACK_AT_MOST = 8
PRIORITY_BYTES = 9  # per transition in the sum tree, inner nodes included
EPISODE_BYTES = 16  # per transition, of hindsight replay: the bounds of its episode


class Target(NamedTuple):
    """Target network: a copy of the parameters of an optimiser, updated by `update_target`."""

    module: nn.Module
    flat: Tensor  # parameters of the copy as one vector
    source: Tensor  # parameters of the online network


class ReplayBatch(NamedTuple):
    """A batch sampled from the replay buffer, as tensors."""

    obs: Any  # tree of tensors [B, ...]
    actions: Tensor  # [B] discrete, or [B, A]
    reward: Tensor  # discounted n-step reward [B]
    discount: Tensor  # of the bootstrapped value, 0 after a termination [B]
    next_obs: Any
    weight: Tensor  # importance weight of prioritised replay, or one [B]
    next_mask: Tensor | None = None  # legal actions at next_obs [B, A], if the env provides masks
    noise: Tensor | None = None  # standard normal noise for the loss [B, A]
    mask: Tensor | None = None  # legal actions at obs, if they were taken with the rest


def kept(metrics: dict[Any, Any]) -> dict[Any, Any]:
    """Copies of metrics that the next gradient step overwrites."""
    return {
        key: value.clone() if isinstance(value, Tensor) else value for key, value in metrics.items()
    }


class OffPolicyLearner(Learner):
    has_replay = True
    is_one_graph = False
    """Whether `learn` can be one CUDA graph: it reads the batch, `hp` and `normal_noise`, and its
    Python code depends on `step_kind` only."""
    takes_stale = True

    def __init__(
        self,
        config: OffPolicyConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.replay_config = config
        if not config.prioritized:
            self.ignore("per_beta")
        self.memory: Memory | None = None
        self.device_replay: DeviceReplay | None = None
        self.goals: GoalFunctions | None = None  # of the env, for hindsight replay
        self.targets: dict[str, Target] = {}
        self.update_credit = 0.0
        self.rows_needed = 1
        """Rows of the replay buffer that a batch needs: of the sequences of a recurrent network."""
        self.target_copy_freq: int | None = None
        """Env steps between hard updates of the target networks; None: no hard updates."""
        self.captured_error: CapturedError | None = None  # of the step that is being captured
        self.noise_generator: torch.Generator | None = None
        """Draws the noise of losses on a GPU; on the CPU `rng` draws it."""
        if self.device.type == "cuda":
            self.noise_generator = torch.Generator(self.device)
            self.noise_generator.manual_seed(int(self.rng.integers(2**63)))
        self.step_graph: GraphedStep | None = None
        if self.is_one_graph and self.device.type == "cuda" and self.may_record:
            # A value that changes with the clock would keep its first value in a graph. Classes of
            # torch.optim count on the host.
            fits = not self._changing and config.optimizer in FLAT_KINDS
            self.step_graph = GraphedStep(self) if fits else None

    @abstractmethod
    def learn(
        self, batch: ReplayBatch, sample: Sample | Draw, hp: dict[str, float]
    ) -> dict[str, Any]:
        """Do one gradient step on one batch and return its metrics."""

    def can_join_steps(self) -> bool:
        """Whether `learn_joined` does the gradient steps of an update. Depends on the config, and
        on whether gradients are compiled, alone."""
        return False

    def learn_joined(self, n_updates: int, hp: dict[str, float]) -> dict[str, Any]:
        """All gradient steps of an update together; returns their mean metrics."""
        raise NotImplementedError

    def prepare_step(self) -> None:
        """Host work before each gradient step, e.g. new noise in the networks."""

    def step_kind(self) -> Any:
        """Which kind of gradient step comes next, if they differ."""

    # -- targets ----------------------------------------------------------------------------

    def set_target(self, optimizer: Optimizer) -> nn.Module:
        """Create a target network for the module of an optimiser."""
        name = next(name for name, own in self.optimizers.items() if own is optimizer)
        module = copy.deepcopy(optimizer.module).requires_grad_(False)
        self.targets[name] = Target(module, flatten_parameters(module), optimizer.flat)
        return module

    @torch.no_grad()
    def update_target(self, tau: float, but: Optimizer | None = None) -> None:
        """Move every target network towards its online network, or all but one."""
        with self.timer.detail("target network"):
            for target in self.targets.values():
                if but is None or target.source is not but.flat:
                    move_target(target.flat, target.source, tau)

    def step_with_target(self, optimizer: Optimizer, grad: Tensor, lr: float, tau: float) -> Tensor:
        """An optimiser step, after which the target network of the module moves: in the same pass
        over memory, where steps are compiled. Returns the norm of the gradient."""
        own = next(t.flat for t in self.targets.values() if t.source is optimizer.flat)
        return optimizer.step_with_target(grad, lr, own, tau)

    # -- replay buffer ----------------------------------------------------------------------

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        if self.replay_config.her is not None:
            check_goal_space(self.observation_space, self.config.env_id)
            self.goals = goals()

    def start_training(self) -> None:
        """Report the size of the replay buffer and refuse one that does not fit."""
        self.note_compiler()
        cfg, estimate = self.replay_config, self.replay_bytes
        where = "in memory" if cfg.replay_dir is None else f"in a file in {cfg.replay_dir}"
        self.notes.append(
            f"replay: {cfg.buffer_size:,} transitions take {estimate / 2**20:,.1f} MB {where}"
            + (", and a copy on the GPU" if self._copies_replay else "")
            + ("" if self.saves_replay else "; not saved with checkpoints (save_replay)")
        )
        if cfg.replay_dir is None:
            check_fits(estimate, available_memory_bytes())

    @property
    def _copies_replay(self) -> bool:
        """Whether the replay buffer is copied to the GPU, where gradient steps take batches."""
        setting = self.replay_config.replay_on_gpu
        if setting is False or self.device.type != "cuda" or self.step_graph is None:
            return False
        if self.policy.has_memory or self.replay_config.her is not None:  # they need the host
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return setting is True or self.replay_bytes <= GPU_SHARE * free

    @property
    def replay_bytes(self) -> int:
        cfg = self.replay_config
        rows = Replay.estimate_bytes(
            cfg.buffer_size,
            cfg.n_envs,
            self.observation_space,
            self.actions,
            frame_stacks=self.frame_stacks,
        )
        more = PRIORITY_BYTES * cfg.prioritized + EPISODE_BYTES * (cfg.her is not None)
        if self.policy.has_memory:
            more += sum(part.nbytes for part in self.policy.initial_carry(1).values())
        return rows + more * cfg.buffer_size

    @property
    def saves_replay(self) -> bool:  # type: ignore[override]
        setting = self.replay_config.save_replay
        return self.replay_bytes <= SMALL_REPLAY_BYTES if setting == "auto" else setting

    @property
    def frame_stacks(self) -> dict[str, int]:
        """Frames stacked in each image of the observation; the replay stores only the newest
        frame."""
        setting = self.replay_config.replay_frame_stack
        stacks = {}
        for name, part in part_spaces(self.observation_space).items():
            shape: tuple[int, ...] = part.shape or ()
            is_image = part.dtype == np.uint8 and len(shape) == 3
            if setting == "auto":
                stacks[name] = self._stacked_frames(shape) if is_image else 1
            elif name == "" or is_image:
                stacks[name] = setting
        return stacks

    def _stacked_frames(self, shape: tuple[int, ...]) -> int:
        """Frames in an image of this shape: those that the config stacks, or the channels of an
        image that the environment stacked itself. Three channels are a colour image."""
        channels, *sides = shape
        asked = self.config.frame_stack or 1
        if asked > 1 and channels % asked == 0 and channels // asked in FRAME_CHANNELS:
            return asked
        is_colour = channels == 3
        return channels if channels <= min(STACK_AT_MOST, min(sides) - 1) and not is_colour else 1

    def open_memory(self, has_masks: bool) -> Memory:
        """Allocate the replay buffer on first use. An agent that only acts never allocates it."""
        cfg = self.replay_config
        replay = Replay(
            cfg.buffer_size,
            cfg.n_envs,
            self.observation_space,
            self.actions,
            has_masks=has_masks,
            frame_stacks=self.frame_stacks,
            carry=self.policy.initial_carry(1) if self.policy.has_memory else None,
            directory=cfg.replay_dir,
            has_goals=cfg.her is not None,
        )
        self.memory = self._memory(replay)
        return self.memory

    def adopt_memory(self, memory: Memory) -> None:
        self.memory = self._memory(memory.replay)
        if self.memory.priorities is not None and memory.priorities is not None:
            memory.priorities.alpha = self.memory.priorities.alpha
            memory.priorities.eps = self.memory.priorities.eps
            self.memory.priorities = memory.priorities

    def _memory(self, replay: Replay) -> Memory:
        """Sampling from a replay buffer, as configured."""
        cfg = self.replay_config
        self.device_replay = None
        if self._copies_replay and can_copy(replay):
            self.device_replay = DeviceReplay(
                replay, self.observation_space, self.frame_stacks,
                cfg.n_step, cfg.rollout_rows, self.device,
            )  # fmt: skip
        return Memory(
            replay,
            n_step=cfg.n_step,
            gamma=at_start(cfg.gamma),
            batch_size=cfg.batch_size,
            rng=self.rng,
            prioritized=cfg.prioritized,
            alpha=at_start(cfg.per_alpha),
            eps=cfg.per_eps,
            combined=cfg.combined_replay,
            hindsight=self._hindsight(),
        )

    def _hindsight(self) -> Hindsight | None:
        settings = self.replay_config.her
        if settings is None:
            return None
        if self.goals is None:
            raise ConfigError("her: the agent was given no goal functions (use_goals).")
        return Hindsight(settings, self.goals)

    # -- acting and learning ----------------------------------------------------------------

    def set_clock(self, env_steps: int, total_steps: int) -> None:
        super().set_clock(env_steps, total_steps)
        self.replay_config = self.config
        if self.memory is not None:
            self.memory.gamma = self.config.gamma
            if self.memory.priorities is not None:
                self.memory.priorities.alpha = self.config.per_alpha

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.is_random = env_steps < self.replay_config.learning_starts

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, Any]:
        """Store a rollout, do the updates that are due and return their mean metrics."""
        hp = self.scheduled_values(env_steps, total_steps)
        with self.timer.detail("store in the replay"):
            n_updates = self.remember(rollout)
        freq, steps_after = self.target_copy_freq, env_steps + rollout.env_steps
        if freq is not None and steps_after // freq > env_steps // freq:
            self.update_target(1.0)
        if n_updates and self.can_join_steps():
            return self.learn_joined(n_updates, hp) | hp_metrics(hp)
        steps, details = [], {}
        for sample in self.timer.each("sample", self.samples(n_updates, hp)):
            if self.take_details():
                details = self.details(self.on_device(sample))
            self.prepare_step()
            if self.step_graph is None:
                steps.append(self.learn(self.on_device(sample), sample, hp))
            else:
                metrics = self.step_graph(sample, hp, self.step_kind())
                steps.append(metrics if n_updates == 1 else kept(metrics))
        return ops.mean_metrics(steps) | details | hp_metrics(hp)

    @torch.no_grad()
    def details(self, batch: ReplayBatch) -> dict[str, float]:
        """Metrics that cost time: hidden units on one batch, and the replay buffer."""
        assert self.memory is not None
        with watch_units(self.net) as units:
            self.forward_all(batch)
        found = units.metrics(batch.obs) | {"opt/replay/size": float(len(self.memory))}
        if self.memory.priorities is not None:
            found["opt/replay/priority_evenness"] = self.memory.priorities.evenness()
        return found

    def forward_all(self, batch: ReplayBatch) -> None:
        """A forward pass through every trained network, for statistics of its units. An algorithm
        that has none reports none."""

    def remember(self, rollout: Rollout) -> int:
        """Store a rollout and return the number of updates that are due."""
        cfg = self.replay_config
        memory = self.memory or self.open_memory(rollout.mask is not None)
        memory.add(self._with_intrinsic(rollout))
        if self.encoder.learns_moments:
            obs = rollout.valid_obs()
            self.encoder.observe(obs if cfg.her is None else with_achieved_goals(obs))
        if cfg.scales_reward:
            if rollout.is_restart:
                self.reward_normalizer.restart()
            self.reward_normalizer.update(rollout.reward, rollout.done, rollout.valid)
        # Check the buffer's length too: a resume without a saved replay buffer fills it again
        # first.
        is_full = memory.replay.oldest_row > 0
        if len(memory) < max(1, cfg.learning_starts) and not is_full:
            return 0
        if memory.replay.n_added - memory.replay.oldest_row < self.rows_needed:
            return 0
        self.update_credit += rollout.env_steps * cfg.updates_per_step
        n_updates = int(self.update_credit)
        self.update_credit -= n_updates
        self.n_updates += n_updates
        return n_updates

    def _with_intrinsic(self, rollout: Rollout) -> Rollout:
        """The rollout with the intrinsic reward in its rewards, as it is stored."""
        if self.intrinsic is None:
            return rollout
        return replace(rollout, reward=rollout.reward + self.intrinsic(rollout, *self.clock))

    def samples(self, n_updates: int, hp: dict[str, float]) -> Iterable[Sample | Draw]:
        """Sample `n_updates` batches from the replay buffer, with normalised rewards if
        configured."""
        if n_updates == 0:
            return ()
        assert self.memory is not None
        beta = hp.get("per_beta", 1.0)
        if self.device_replay is not None:
            return self.memory.draws(n_updates, beta)
        return self.memory.batches(n_updates, beta, *self.reward_shaping())

    def reward_shaping(self) -> tuple[float, float | None]:
        """Factor and bound of sampled rewards."""
        if not self.config.scales_reward:
            return 1.0, None
        return self.reward_normalizer.scale, self.config.clip_reward

    def columns(self, sample: Sample | Draw) -> ReplayBatch | Request:
        """The arrays of a sample that go to the device."""
        if isinstance(sample, Draw):
            assert self.device_replay is not None
            assert self.memory is not None
            gamma, shaping = self.memory.gamma, self.reward_shaping()
            return self.device_replay.request(sample.index, sample.weight, gamma, *shaping)
        return ReplayBatch(
            obs=sample.obs,
            actions=sample.actions,  # type: ignore[arg-type]
            reward=sample.reward,  # type: ignore[arg-type]
            discount=sample.discount,  # type: ignore[arg-type]
            next_obs=sample.next_obs,
            weight=sample.weight,  # type: ignore[arg-type]
            next_mask=sample.next_mask,  # type: ignore[arg-type]
        )

    def batch_of(self, columns: Any) -> Any:
        """The batch, from what `columns` returned, as tensors on the device."""
        if isinstance(columns, Request):
            assert self.device_replay is not None
            return ReplayBatch(**self.device_replay.taken(columns)._asdict())
        return columns

    def on_device(self, sample: Sample | Draw) -> ReplayBatch:
        batch: ReplayBatch = self.batch_of(map_tree(self.to_device, self.columns(sample)))
        return batch

    def set_priorities(self, sample: Sample | Draw, error: Tensor) -> None:
        """Set the priorities of the sampled transitions from their TD errors [B]."""
        if not self.replay_config.prioritized:
            return
        if self.captured_error is not None:
            self.captured_error.error = error
        else:
            self.update_priorities(sample, error)

    def update_priorities(self, sample: Sample | Draw, error: Tensor) -> None:
        assert self.memory is not None
        self.memory.update_priorities(sample.index, error.cpu().numpy())

    def normal_noise(self, *shape: int) -> Tensor:
        """Standard normal noise for a loss, from the learner's own random stream."""
        if self.noise_generator is not None:
            return torch.randn(shape, generator=self.noise_generator, device=self.device)
        return self.to_device(self.rng.standard_normal(shape, dtype=np.float32))

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, extra = super().state()
        if self.targets:
            tensors["target"] = self._target_tensors()
        extra["update_credit"] = self.update_credit
        if self.noise_generator is not None:
            extra["noise_generator"] = self.noise_generator.get_state().tolist()
        return tensors, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        super().load_state(tensors, extra)
        with torch.no_grad():
            for name, value in self._target_tensors().items():
                value.copy_(torch.as_tensor(tensors["target"][name]))
        self.update_credit = extra["update_credit"]
        saved = extra.get("noise_generator")  # none: of a run on the CPU
        if self.noise_generator is not None and saved is not None:
            self.noise_generator.set_state(torch.tensor(saved, dtype=torch.uint8))

    def _target_tensors(self) -> dict[str, Tensor]:
        return {
            f"{name}.{key}": value
            for name, target in self.targets.items()
            for key, value in target.module.state_dict().items()
        }

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        skipped = super().load_matching_weights(model)
        self.update_target(1.0)
        return skipped

    def snapshot(self) -> Snapshot:
        copies = {name: value.clone() for name, value in self._target_tensors().items()}
        return [*super().snapshot(), (torch.empty(0), copies)]

    def restore(self, snapshot: Snapshot) -> None:
        *rest, (_, copies) = snapshot
        for name, value in self._target_tensors().items():
            value.copy_(copies[name])
        super().restore(rest)
