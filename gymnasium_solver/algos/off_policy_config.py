"""The fields of every algorithm with a replay buffer."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gymnasium_solver.config.her import HerField
from gymnasium_solver.config.schedule import (
    PositiveSchedule,
    Schedule,
    changing,
    scheduled,
)
from gymnasium_solver.config.schema import Activation, Count, Float, LearnerConfig, NonNegativeInt
from gymnasium_solver.config.search_range import searched
from gymnasium_solver.config.types import EnvCount, HiddenDims


class OffPolicyConfig(LearnerConfig):
    n_envs: EnvCount = 1
    """Number of parallel environments. auto: one per CPU. More: faster collection and less
    correlated data; the number of updates per env step stays the same."""
    n_steps: Count = 1000
    """Steps per environment in one epoch, the unit of reports and evaluations. Does not change
    learning: train_freq and updates_per_step do. Fewer: earlier and finer curves, more overhead.
    Not the n_step of n-step returns."""
    policy_lr: Annotated[PositiveSchedule, searched("log:3e-5..3e-3", main=True)] = (
        Schedule.constant(3e-4)
    )
    """Learning rate. Higher: faster learning, until it becomes unstable."""
    batch_size: Annotated[Count, searched("pow2:32..512", main=True)] = 256
    """Transitions per gradient step. Larger: less noisy, slower."""
    hidden_dims: HiddenDims = (256, 256)
    """Width of each hidden layer. Wider: more capacity, slower, easier to overfit."""
    activation: Activation = "relu"
    """Activation function of the hidden layers."""
    adam_eps: Annotated[Float, Field(gt=0)] = 1e-8
    """Epsilon of Adam's denominator. Higher: smaller steps where gradients are small."""

    # --- replay
    buffer_size: Annotated[Count, searched("10_000,100_000,1_000_000")] = 100_000
    """Capacity of the replay buffer in transitions, over all environments. More: more varied, older
    data."""
    learning_starts: Annotated[NonNegativeInt, searched("100,1000,5000,10000")] = 1000
    """Env steps with random actions before the first update. More: more varied initial data."""
    train_freq: Annotated[Count, searched("pow2:1..16")] = 1
    """Env steps between two rounds of updates, at least one per environment. More: fewer, longer
    rounds, which is faster; the number of updates stays the same."""
    updates_per_step: Annotated[float, changing(gt=0), searched("0.25,0.5,1.0,2.0")] = 1.0
    """Gradient steps per env step, for any n_envs. More: better use of the data, slower, until it
    overfits the replay."""
    n_step: Annotated[Count, searched("int:1..5")] = 1
    """Rewards summed before the bootstrapped value in the target (n-step returns). 1: one-step TD.
    More: rewards propagate faster, with more variance and off-policy bias. Not the n_steps of an
    epoch."""
    prioritized: bool = False
    """Prioritised replay: sample transitions by their last TD error instead of uniformly."""
    per_alpha: Annotated[float, changing(ge=0, le=1)] = 0.6
    """Exponent of the priorities: 0 is uniform, 1 is proportional to the error."""
    per_beta: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse({"start": 0.4, "end": 1})
    """Exponent of the importance weights that correct prioritised sampling: 0 none, 1 full."""
    per_eps: Annotated[Float, Field(gt=0)] = 1e-6
    """Added to every priority, so that every transition can be sampled."""
    combined_replay: bool = False
    """Combined replay: include the newest transitions in every batch (Zhang and Sutton 2017)."""
    her: HerField = None
    """Hindsight experience replay, for goal environments (observation, achieved_goal,
    desired_goal): a share k / (k + 1) of the sampled transitions gets a goal that was achieved in
    the same episode. future: later in it; final: at its end; episode: anywhere in it. true is
    {strategy: future, k: 4}."""
    replay_frame_stack: Literal["auto"] | Count = "auto"
    """Number of stacked frames in an image observation; the replay stores each frame once. auto:
    frame_stack, or where it is not set the first axis of a uint8 observation with three axes, if it
    is short and not 3 (colours). 1: store whole observations."""
    replay_dir: str | None = None
    """Folder of a memory-mapped file for a replay larger than memory. Unset: in memory."""
    replay_on_gpu: Literal["auto"] | bool = "auto"
    """When training on a GPU: also keep a copy of the replay there, from which batches are taken.
    The results are the same. auto: if it takes at most half of the GPU's free memory, and without
    her and recurrent, which need the host."""
    save_replay: Literal["auto"] | bool = "auto"
    """Save the replay in checkpoints, required for an exact resume. auto: if it is below 512 MB."""

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        if self.her is not None and self.intrinsic is not None:
            raise ValueError("her computes rewards anew, so it cannot be used with intrinsic")
        if self.replay_on_gpu is True and self.her is not None:
            raise ValueError("her computes goals on the host: remove replay_on_gpu or her")
        if self.replay_on_gpu is True and getattr(self, "recurrent", None) is not None:
            raise ValueError("sequences are taken on the host: remove replay_on_gpu or recurrent")
        return self

    @property
    def gradient_samples(self) -> int:
        return self.batch_size

    @property
    def rollout_rows(self) -> int:
        return min(self.n_steps, max(1, self.train_freq // self.n_envs))
