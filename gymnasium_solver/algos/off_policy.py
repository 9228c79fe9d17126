"""What learners with a replay share: its settings, filling it, and how many updates are due.

Not a base algorithm either: an update reads

    n_updates = self.remember(rollout, env_steps)
    for batch in self.batches(n_updates, hp): ...

Updates per env step are a setting of their own (`updates_per_step`), which means the same for one
env and for a hundred: what is due is counted from env steps, fractions are carried over.
"""

import copy
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor, nn

from gymnasium_solver.algos.learner import Learner, Snapshot
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, scheduled
from gymnasium_solver.config.schema import Activation, Count, Float, LearnerConfig, NonNegativeInt
from gymnasium_solver.config.types import EnvCount, HiddenDims
from gymnasium_solver.data.memory import Memory, Sample
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.optimizer import FlatOptimizer, flatten_parameters

SMALL_REPLAY_BYTES = 512 * 2**20
STACK_AT_MOST = 8
PRIORITY_BYTES = 9  # of a transition in the sum tree, inner nodes included


class OffPolicyConfig(LearnerConfig):
    n_envs: EnvCount = 1
    """Environments stepped side by side; auto = one a CPU. More: faster collection and less
    correlated data; the updates per env step stay the same."""
    n_steps: Count = 1000
    """Rows of each env in an epoch, which is the unit of reports and evaluations alone. Fewer:
    finer curves, more time spent on them."""
    policy_lr: PositiveSchedule = Schedule.constant(3e-4)
    """Learning rate. Higher: faster, until it becomes unstable."""
    batch_size: Count = 256
    """Transitions in a gradient step. Larger: steadier, slower."""
    hidden_dims: HiddenDims = (256, 256)
    """Width of each hidden layer. Wider: more capacity, slower, easier to overfit."""
    activation: Activation = "relu"
    """Non-linearity between layers."""
    adam_eps: Annotated[Float, Field(gt=0)] = 1e-8
    """Keeps Adam from dividing by zero. Higher: smaller steps where gradients are small."""

    # --- replay
    buffer_size: Count = 100_000
    """Transitions kept, over all envs; the oldest go first. More: more varied, older data."""
    learning_starts: NonNegativeInt = 1000
    """Env steps with random actions before the first update. More: more varied first data."""
    train_freq: Count = 1
    """Env steps between two rounds of updates, at least one of each env. More: fewer, longer
    rounds, which is faster; the number of updates stays the same."""
    updates_per_step: Annotated[Float, Field(gt=0)] = 1.0
    """Gradient steps for each env step, whatever n_envs is. More: better use of the data, slower,
    until it overfits the replay."""
    n_step: Count = 1
    """Rewards summed before the bootstrapped value. More: news travels faster, with more variance
    and some bias by older policies."""
    prioritized: bool = False
    """Draw transitions in proportion to their last error instead of evenly."""
    per_alpha: Annotated[Float, Field(ge=0, le=1)] = 0.6
    """How strongly the error decides in a prioritised draw: 0 is uniform, 1 is proportional."""
    per_beta: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse({"start": 0.4, "end": 1})
    """How much of the bias of a prioritised draw its weights undo: 0 none, 1 all."""
    per_eps: Annotated[Float, Field(gt=0)] = 1e-6
    """Added to every error, so that no transition is forgotten."""
    combined_replay: bool = False
    """Put the newest transitions into every batch (Zhang and Sutton 2017)."""
    replay_frame_stack: Literal["auto"] | Count = "auto"
    """Frames stacked in an image observation, of which the replay keeps each but once. auto: the
    first axis of a uint8 observation with three, if it is short; 1: observations kept whole."""
    replay_dir: str | None = None
    """Folder for a memory-mapped file that holds the replay, if memory cannot. Unset: in memory."""
    save_replay: Literal["auto"] | bool = "auto"
    """Keep the replay in checkpoints, which an exact resume needs. auto: if it is below 512 MB."""

    @property
    def gradient_samples(self) -> int:
        return self.batch_size

    @property
    def rollout_rows(self) -> int:
        return min(self.n_steps, max(1, self.train_freq // self.n_envs))


class Target(NamedTuple):
    """A copy of what an optimiser moves, which follows it."""

    module: nn.Module
    flat: Tensor  # its weights as one vector
    source: Tensor  # the weights it follows


class OffPolicyLearner(Learner):
    has_replay = True

    def __init__(
        self,
        config: OffPolicyConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.replay_config = config
        if not config.prioritized:
            self.ignore("per_beta")
        self.memory: Memory | None = None
        self.targets: dict[str, Target] = {}
        self.update_credit = 0.0
        self.n_updates = 0

    def set_target(self, optimizer: FlatOptimizer) -> nn.Module:
        """A copy of what an optimiser moves, which follows only by `update_target`."""
        name = next(name for name, own in self.optimizers.items() if own is optimizer)
        module = copy.deepcopy(optimizer.module).requires_grad_(False)
        self.targets[name] = Target(module, flatten_parameters(module), optimizer.flat)
        return module

    @torch.no_grad()
    def update_target(self, tau: float) -> None:
        """Move the weights of every target by the share `tau` towards their source's."""
        for target in self.targets.values():
            if tau == 1.0:
                target.flat.copy_(target.source)
            else:
                target.flat.lerp_(target.source, tau)

    # -- the replay -------------------------------------------------------------------------

    def start_training(self) -> None:
        """Say what the replay will take, and refuse what cannot fit."""
        cfg, estimate = self.replay_config, self.replay_bytes
        where = "in memory" if cfg.replay_dir is None else f"in a file in {cfg.replay_dir}"
        self.notes.append(
            f"replay: {cfg.buffer_size:,} transitions take {estimate / 2**20:,.1f} MB {where}"
            + ("" if self.saves_replay else "; not saved with checkpoints (save_replay)")
        )
        if cfg.replay_dir is None:
            check_fits(estimate, available_memory_bytes())

    @property
    def replay_bytes(self) -> int:
        cfg = self.replay_config
        rows = Replay.estimate_bytes(
            cfg.buffer_size,
            cfg.n_envs,
            self.observation_space,
            self.action_space,
            frame_stack=self.frame_stack,
        )
        return rows + (PRIORITY_BYTES * cfg.buffer_size if cfg.prioritized else 0)

    @property
    def saves_replay(self) -> bool:
        setting = self.replay_config.save_replay
        return self.replay_bytes <= SMALL_REPLAY_BYTES if setting == "auto" else setting

    @property
    def frame_stack(self) -> int:
        setting, shape = self.replay_config.replay_frame_stack, self.observation_space.shape or ()
        if setting != "auto":
            return setting
        is_stack = (
            self.observation_space.dtype == np.uint8
            and len(shape) == 3
            and shape[0] <= min(STACK_AT_MOST, shape[1] - 1, shape[2] - 1)
        )
        return shape[0] if is_stack else 1

    def open_memory(self, has_masks: bool) -> Memory:
        """The replay, allocated when it is first needed: an agent that only acts has none."""
        cfg = self.replay_config
        n_actions = self.action_space.n if isinstance(self.action_space, spaces.Discrete) else None
        replay = Replay(
            cfg.buffer_size,
            cfg.n_envs,
            self.observation_space,
            self.action_space,
            n_masked_actions=int(n_actions) if n_actions and has_masks else None,
            frame_stack=self.frame_stack,
            directory=cfg.replay_dir,
        )
        self.memory = Memory(
            replay,
            n_step=cfg.n_step,
            gamma=cfg.gamma,
            batch_size=cfg.batch_size,
            rng=self.rng,
            prioritized=cfg.prioritized,
            alpha=cfg.per_alpha,
            eps=cfg.per_eps,
            combined=cfg.combined_replay,
        )
        return self.memory

    # -- acting and learning ----------------------------------------------------------------

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.is_random = env_steps < self.replay_config.learning_starts

    def remember(self, rollout: Rollout, env_steps: int) -> int:
        """Take a rollout in; how many updates are due after it."""
        cfg = self.replay_config
        memory = self.memory or self.open_memory(rollout.mask is not None)
        memory.add(rollout)
        if self.net.learns_moments:
            self.net.observe(rollout.valid_obs())
        self.policy.end_episodes(np.logical_or.reduce(rollout.done))
        if cfg.normalize_reward:
            self.reward_normalizer.update(rollout.reward, rollout.done, rollout.valid)
        # By what the memory holds, too: a resume without a saved replay fills it again first.
        is_full = memory.replay.oldest_row > 0
        if len(memory) < max(1, cfg.learning_starts) and not is_full:
            return 0
        self.update_credit += rollout.env_steps * cfg.updates_per_step
        n_updates = int(self.update_credit)
        self.update_credit -= n_updates
        self.n_updates += n_updates
        return n_updates

    def batches(self, n_updates: int, hp: dict[str, float]) -> Iterator[Sample]:
        """So many draws from the replay, with rewards as they are to be learnt from."""
        assert self.memory is not None
        scale, clip = 1.0, None
        if self.config.normalize_reward:
            scale, clip = self.reward_normalizer.scale, self.config.clip_reward
        return self.memory.batches(
            n_updates, beta=hp.get("per_beta", 1.0), reward_scale=scale, reward_clip=clip
        )

    def encode(self, obs: np.ndarray) -> Tensor:
        return self.net.encoded(obs, self.device)

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        tensors, extra = super().state()
        if self.targets:
            tensors["target"] = self._target_tensors()
        extra |= {"update_credit": self.update_credit, "n_updates": self.n_updates}
        return tensors, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        super().load_state(tensors, extra)
        with torch.no_grad():
            for name, value in self._target_tensors().items():
                value.copy_(torch.as_tensor(tensors["target"][name]))
        self.update_credit, self.n_updates = extra["update_credit"], extra["n_updates"]

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
