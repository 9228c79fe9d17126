"""Base of the learners with a replay buffer: what is stored, when updates are due, what is sampled.

An algorithm builds its networks, descents and a program of them in `build`:

    self.program = self.add_program(self.step)        # step(batch, hp, turn) -> Learnt

`update` stores the rollout, computes how many gradient steps are due, and runs the program on that
many batches: transitions (`ReplayBatch`), or sequences (`SequenceBatch`) if `self.sequences` is
set. `updates_per_step` is the ratio of gradient steps to env steps and means the same for one env
and for a hundred. Due updates are counted from env steps; fractions carry over.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import processes
from gymnasium_solver.algos.agent import Tensors
from gymnasium_solver.algos.configs.shared import OffPolicyConfig
from gymnasium_solver.algos.learner import Learner, hp_metrics
from gymnasium_solver.algos.units import error_spread, value_spread, watch_units
from gymnasium_solver.config.schedule import at_start
from gymnasium_solver.data.columns import FRAME_CHANNELS
from gymnasium_solver.data.device_replay import DeviceReplay, Request, can_copy
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.memory import Memory, Sample, split
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.replay import Replay, ReplayBatch
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.data.sequences import SequenceBatch, sequence_batch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.optimizer import FLAT_KINDS
from gymnasium_solver.fast.program import Program, Single, Step
from gymnasium_solver.spaces.observations import part_spaces
from gymnasium_solver.tree import map_tree

SMALL_REPLAY_BYTES = 512 * 2**20
GPU_SHARE = 0.5  # of the GPU's free memory, for a copy of the replay buffer
STACK_AT_MOST = 8
PRIORITY_BYTES = 9  # per transition in the sum tree, inner nodes included


class SequenceLengths(NamedTuple):
    """Rows of a sampled sequence: some to bring the carry up to date, then those to learn from."""

    burn_in: int
    length: int

    @property
    def n_rows(self) -> int:
        return self.burn_in + self.length


class ReplayLearner(Learner):
    has_replay = True
    takes_stale = True
    config: OffPolicyConfig
    program: Program
    sequences: SequenceLengths | None = None  # learn from sequences; None: from transitions
    reads_masks = False  # batches have the legal actions at their observations
    target_copy_freq: int | None = None
    """Env steps between copies of the networks into their target networks; None: none."""

    memory: Memory | None = None
    device_replay: DeviceReplay | None = None
    update_credit = 0.0
    is_stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Whether a long burst of updates is to end now; set by the training loop."""
    owed_updates = 0
    """Updates that a burst has left undone for that. `pay_updates` makes up for them."""
    noise_generator: torch.Generator | None = None
    """Draws the noise of losses on a GPU; on the CPU `rng` draws it."""

    def add_program(
        self,
        step: Step | Single,
        *,
        turn: Callable[[], Any] = lambda: None,
        before: Callable[[], None] | None = None,
        one_graph: bool = True,
    ) -> Program:
        """The steps of an update. `one_graph`: on a GPU a step can be one CUDA graph, as its Python
        code depends on `turn` only."""
        if not self.config.prioritized:
            self.ignore("per_beta")
        if self.device.type == "cuda":
            own = torch.Generator(self.device).manual_seed(int(self.rng.integers(2**63)))
            self.noise_generator = self.generators["noise_generator"] = own
        # A value that changes with the clock would keep its first value in a graph. Classes of
        # torch.optim count on the host.
        fits = not self._changing and self.config.optimizer in FLAT_KINDS
        is_recorded = self.device.type == "cuda" and self.execution.records
        return Program(
            step,
            self,
            self.descents.values(),
            turn=turn,
            before=before,
            generator=self.noise_generator,
            graph=one_graph and fits and is_recorded,
        )

    def _timed(self) -> list[Any]:
        return [*super()._timed(), self.program]

    # -- replay buffer ----------------------------------------------------------------------

    def _note_sizes(self) -> None:
        """Report the size of the replay buffer and refuse one that does not fit."""
        cfg, estimate = self.config, self.replay_bytes
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
        setting = self.config.replay_on_gpu
        if setting is False or self.device.type != "cuda" or not self.program.graph:
            return False
        if self.sequences is not None or any(e.needs_host for e in self.extensions):
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return setting is True or self.replay_bytes <= GPU_SHARE * free

    @property
    def replay_bytes(self) -> int:
        cfg = self.config
        rows = Replay.estimate_bytes(
            cfg.buffer_size,
            cfg.n_envs,
            self.observation_space,
            self.actions,
            frame_stacks=self.frame_stacks,
        )
        more = PRIORITY_BYTES * cfg.prioritized + sum(
            extension.bytes_per_transition for extension in self.extensions
        )
        if self.policy.has_memory:
            more += sum(part.nbytes for part in self._stored_carry().values())
        return rows + more * cfg.buffer_size

    def _stored_carry(self) -> dict[str, np.ndarray]:
        """An example of the carry that is stored with a transition."""
        return self.policy.recorded_carry(self.policy.initial_carry(1))

    @property
    def burn_in(self) -> int:
        """Rows of a sequence that only bring the carry up to date."""
        return 0 if self.sequences is None else self.sequences.burn_in

    @property
    def saves_replay(self) -> bool:
        setting = self.config.save_replay
        return self.replay_bytes <= SMALL_REPLAY_BYTES if setting == "auto" else setting

    @property
    def frame_stacks(self) -> dict[str, int]:
        """Frames stacked in each image of the observation; the replay stores only the newest
        frame."""
        setting = self.config.replay_frame_stack
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
        cfg = self.config
        replay = Replay(
            cfg.buffer_size,
            cfg.n_envs,
            self.observation_space,
            self.actions,
            has_masks=has_masks,
            frame_stacks=self.frame_stacks,
            carry=self._stored_carry() if self.policy.has_memory else None,
            directory=cfg.replay_dir,
            has_goals=any(extension.tracks_episodes for extension in self.extensions),
            has_bonus=any(extension.gives_bonus for extension in self.extensions),
        )
        self.memory = self._memory(replay)
        return self.memory

    def adopt_memory(self, memory: Memory) -> None:
        if memory.replay.has_bonus != any(e.gives_bonus for e in self.extensions):
            raise ConfigError(
                "intrinsic: the replay buffer was made with or without its rewards; start a new "
                "run to turn it on or off"
            )
        self.memory = self._memory(memory.replay)
        if self.memory.priorities is not None and memory.priorities is not None:
            memory.priorities.alpha = self.memory.priorities.alpha
            memory.priorities.eps = self.memory.priorities.eps
            self.memory.priorities = memory.priorities

    def _memory(self, replay: Replay) -> Memory:
        """Sampling from a replay buffer, as configured."""
        cfg = self.config
        self.device_replay = None
        if self._copies_replay and can_copy(replay):
            self.device_replay = DeviceReplay(
                replay, self.observation_space, self.frame_stacks,
                cfg.n_step, cfg.rollout_rows, self.device,
            )  # fmt: skip
        goals = [e.hindsight for e in self.extensions if e.hindsight is not None]
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
            hindsight=goals[0] if goals else None,
        )

    # -- acting and learning ----------------------------------------------------------------

    @property
    def needs_host(self) -> str | None:
        reasons = {
            f"algo_id: {self.config.algo_id}": self.sequences is not None or processes.count() > 1,
            "its extensions": bool(self.extensions),
            "its exploration": not self.policy.chooses_tensors,
            "the observation space": not self.encoder.is_vector or self.encoder.is_dict,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def set_clock(self, env_steps: int, total_steps: int) -> None:
        super().set_clock(env_steps, total_steps)
        if self.memory is not None:
            self.memory.gamma = self.config.gamma
            if self.memory.priorities is not None:
                self.memory.priorities.alpha = self.config.per_alpha

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.is_random = env_steps < self.config.learning_starts

    def update(
        self, rollout: Rollout | DeviceRollout, env_steps: int, total_steps: int
    ) -> dict[Any, Any]:
        """Store a rollout, do the updates that are due and return their mean metrics."""
        if isinstance(rollout, DeviceRollout):
            rollout = rollout.with_final_rows()
        hp = self.scheduled_values(env_steps, total_steps)
        n_before = self.n_updates
        with self.timer.detail("store in the replay"):
            n_updates = self.remember(rollout)
        freq, steps_after = self.target_copy_freq, env_steps + rollout.env_steps
        if freq is not None and steps_after // freq > env_steps // freq:
            with self.timer.detail("target network"):
                for optimizer in self.optimizers.values():
                    optimizer.copy_to_targets()
        return self._learn(n_updates, n_before, hp)

    def pay_updates(self, n_updates: int, env_steps: int, total_steps: int) -> dict[Any, Any]:
        """Do the rest of a burst that was cut short; the clock is that of its rollout."""
        self.owed_updates = 0
        return self._learn(n_updates, 0, self.scheduled_values(env_steps, total_steps))

    def _learn(self, n_updates: int, n_before: int, hp: dict[str, float]) -> dict[Any, Any]:
        details: dict[str, float] = {}
        samples = self._with_details(self.samples(n_updates, hp), details)
        metrics = self.program(samples, hp) | details | hp_metrics(hp)
        every = self.config.reset_every
        if every is not None and not self.owed_updates:
            if self.n_updates // every > n_before // every:
                self.reset_networks()
            metrics["opt/resets"] = self.n_updates // every
        return metrics

    @torch.no_grad()
    def reset_networks(self) -> None:
        """New weights in place of the learnt ones, or of a part of each (`shrink_perturb`), and
        optimisers and target networks as at the start. Which weights depends on the seed and on the
        number of updates."""
        seed = np.random.SeedSequence([self.seed, self.n_updates]).generate_state(1)[0]
        fresh = type(self)(
            self._written_config, self.observation_space, self.action_space, int(seed),
            str(self.device),
        )  # fmt: skip
        kept = self.config.shrink_perturb
        for name, own in self.optimizers.items():
            new = fresh.optimizers[name]
            own.load_state(new.state())
            if kept is None:
                for group, other in zip(own.groups, new.groups, strict=True):
                    group.module.load_state_dict(other.module.state_dict())
                own.copy_to_targets()
            else:
                own.flat.lerp_(new.flat, 1.0 - kept)
                own.project()

    def remember(self, rollout: Rollout) -> int:
        """Store a rollout and return the number of updates that are due."""
        cfg = self.config
        memory = self.memory or self.open_memory(rollout.mask is not None)
        bonus = self.bonus(rollout)
        memory.add(rollout if bonus is None else replace(rollout, bonus=bonus))
        if self.encoder.learns_moments:
            obs = rollout.valid_obs()
            for extension in self.extensions:
                obs = extension.observed(obs)
            self.observe(obs)
        if cfg.scales_reward:
            if rollout.is_restart:
                self.reward_normalizer.restart()
            self.reward_normalizer.update(rollout.reward, rollout.done, rollout.valid)
        # Check the buffer's length too: a resume without a saved replay buffer fills it again
        # first.
        is_full = memory.replay.oldest_row > 0
        if len(memory) < max(1, cfg.learning_starts) and not is_full:
            return 0
        n_needed = 1 if self.sequences is None else self.sequences.n_rows
        if memory.replay.n_added - memory.replay.oldest_row < n_needed:
            return 0
        self.update_credit += rollout.env_steps * cfg.updates_per_step
        n_updates = int(self.update_credit)
        self.update_credit -= n_updates
        self.n_updates += n_updates
        return n_updates

    # -- batches ----------------------------------------------------------------------------

    def samples(self, n_updates: int, hp: dict[str, float]) -> Iterable[Sample]:
        """Samples of the replay buffer, of one batch or several, with `n_updates` in all."""
        if n_updates == 0:
            return ()
        assert self.memory is not None
        cfg, beta = self.config, hp.get("per_beta", 1.0)
        if self.sequences is not None:
            n, n_rows = max(1, cfg.batch_size // self.sequences.length), self.sequences.n_rows
            memory = self.memory
            return (memory.sequences(n, n_rows, beta, True) for _ in range(n_updates))
        if self.device_replay is not None:
            return self.memory.draws(n_updates, beta)
        return self.memory.samples(n_updates, beta, *self.reward_shaping())

    def reward_shaping(self) -> tuple[float, float | None]:
        """Factor and bound of sampled rewards."""
        if not self.config.scales_reward:
            return 1.0, None
        return self.reward_normalizer.scale, self.config.clip_reward

    def split(self, sample: Sample) -> Iterable[Sample]:
        """The batches of a sample."""
        whole = self.sequences is not None
        return [sample] if whole else split(sample, self.config.batch_size)

    def columns(self, sample: Sample) -> ReplayBatch | Request | SequenceBatch:
        """The arrays of a sample that go to the device."""
        assert self.memory is not None
        gamma, shaping = self.memory.gamma, self.reward_shaping()
        if self.sequences is not None:
            burn_in, n_step = self.sequences.burn_in, self.memory.n_step
            return sequence_batch(sample.rows, sample.weight, burn_in, n_step, gamma, *shaping)
        if self.device_replay is not None:
            return self.device_replay.request(sample.index, sample.weight, gamma, *shaping)
        mask: Any = self.memory.replay.masks(sample.index) if self.reads_masks else None
        weight: Any = sample.weight
        return ReplayBatch(**sample.rows._asdict(), weight=weight, mask=mask)

    def batch_of(self, columns: Any) -> Any:
        """The batch, from what `columns` returned, as tensors on the device."""
        if isinstance(columns, Request):
            assert self.device_replay is not None
            return self.device_replay.taken(columns)
        return columns

    def on_device(self, sample: Sample) -> Any:
        return self.batch_of(map_tree(self.to_device, self.columns(sample)))

    def set_priorities(self, sample: Sample, errors: Tensor) -> None:
        """Set the priorities of the sampled transitions from their TD errors [B]."""
        if self.config.prioritized:
            assert self.memory is not None
            self.memory.update_priorities(sample.index, errors.cpu().numpy())

    def normal_noise(self, *shape: int) -> Tensor:
        """Standard normal noise for a loss, from the learner's own random stream."""
        if self.noise_generator is not None:
            return torch.randn(shape, generator=self.noise_generator, device=self.device)
        return self.to_device(self.rng.standard_normal(shape, dtype=np.float32))

    def uniform_noise(self, *shape: int) -> Tensor:
        """The same, uniform in [0, 1)."""
        if self.noise_generator is not None:
            return torch.rand(shape, generator=self.noise_generator, device=self.device)
        return self.to_device(self.rng.random(shape, dtype=np.float32))

    # -- metrics that cost time -------------------------------------------------------------

    def _with_details(
        self, samples: Iterable[Sample], details: dict[str, float]
    ) -> Iterator[Sample]:
        """The same samples; details are measured on the first batch, before it is learnt from."""
        for sample in samples:
            if self.take_details():
                details |= self._details(self.on_device(next(iter(self.split(sample)))))
            yield sample

    @torch.no_grad()
    def _details(self, batch: Any) -> dict[str, float]:
        """Hidden units, values and TD errors on one batch, and the replay buffer."""
        assert self.memory is not None
        with watch_units(self.net) as units:
            q = self.forward_all(batch)
        found = units.metrics(batch.obs) | {"opt/replay/size": float(len(self.memory))}
        if q is not None:
            error = batch.reward + batch.discount * self.next_values(batch) - q
            found |= value_spread(q) | error_spread(error)
        if self.memory.priorities is not None:
            found["opt/replay/priority_evenness"] = self.memory.priorities.evenness()
        return found

    def forward_all(self, batch: Any) -> Tensor | None:
        """A forward pass through every trained network, for statistics of its units; the values of
        the actions taken [B]. An algorithm that has none reports none."""
        return None

    def next_values(self, batch: Any) -> Tensor:
        """The values [B] of the states that follow, by the networks that are trained."""
        raise NotImplementedError

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, extra = super().state()
        return tensors, extra | {"update_credit": self.update_credit}

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        super().load_state(tensors, extra)
        self.update_credit = extra["update_credit"]
