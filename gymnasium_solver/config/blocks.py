"""The fields of a config, in small blocks: those that every run has.

A config class is a list of blocks and its own fields:

    class PPOConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
        clip_range: PositiveSchedule = Schedule.constant(0.2)
        "Clip the probability ratio to 1 +- this value. Higher: larger, riskier updates."

The blocks of what learns (networks, optimisation) are in learner_blocks.py. A class takes only
blocks whose fields it reads, so no algorithm has a field without effect. The string under a field
is its documentation in `--help`, the docs and the JSON schema. Pydantic orders fields from the last
base class to the first, so bases are listed from specific to general. It takes a field from the
first base that has it: a block that extends another one (CriticFields) comes after a class that
changes defaults of the latter. A class that changes nothing else of a field names it in `defaults`.
"""

from collections.abc import Mapping
from copy import copy
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from gymnasium_solver.config.field_docs import Documented
from gymnasium_solver.config.marks import live
from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.config.types import (
    Block,
    Count,
    Device,
    EnvCount,
    EpochsOrFraction,
    Float,
    FrameSize,
    Name,
    Names,
    NonNegativeInt,
    ObsKeys,
    PositiveFloat,
    Seed,
    Wrappers,
)
from gymnasium_solver.errors import ConfigError


class Fields(Documented):
    """Base of all blocks: frozen, strict, without unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        defer_build=True,  # only the class of a whole config is ever built
    )

    title: ClassVar[str] = ""
    """Heading of the block in `--help` and in the docs."""
    defaults: ClassVar[dict[str, Any]] = {}
    """Other defaults of fields that the class inherits. All else about them stays."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for name, default in vars(cls).get("defaults", {}).items():
            field = copy(cls.model_fields[name])
            field.default = default
            cls.model_fields[name] = field

    def notices(self) -> list[str]:
        """What the user should know about valid settings, one line each."""
        return []


class IdentityFields(Fields):
    title = "identity"

    env_id: Name
    """Environment to solve, as Gymnasium names it, e.g. CartPole-v1."""
    algo_id: str
    """Algorithm to train with. It decides which further fields exist."""
    project_id: Name | None = None
    """Name that groups runs. Unset: the name of the config file."""
    variant: Name | None = None
    """Name of the variant this config was read from. Set by the loader."""
    description: str = ""
    """One line shown in listings."""
    spec: Block = {}
    """Facts about the environment: labels of actions and observations, rewards. One of them is a
    setting: action_space.valid restricts the actions."""

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        try:
            if self.spec:
                read_spec(self.spec)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self


class BudgetFields(Fields):
    title = "rollout and budget"

    n_envs: EnvCount = 8
    """Number of parallel environments. auto: one per CPU. More: faster, less correlated data, but
    larger and staler rollouts."""
    n_steps: Count = 128
    """Steps per environment in one epoch: a rollout of n_envs x n_steps env steps, followed by one
    update. More: better estimates, fewer updates. Not the number of steps in n-step returns."""
    max_env_steps: Annotated[Count | None, live()] = 100_000
    """Budget in env steps, summed over all environments. null: no limit, `max_epochs` decides."""
    max_epochs: Annotated[Count | None, live()] = None
    """Budget in epochs. An epoch is n_steps in each environment and the updates that follow. Given
    without `max_env_steps`, it is the only limit."""
    max_minutes: Annotated[PositiveFloat | None, live()] = None
    """Budget in minutes of training, beside the others: whichever ends first ends the run. How far
    a run comes then depends on the machine; what it learns on the way does not."""
    max_episode_steps: Count | None = None
    """Time limit of an episode in steps. Unset: the environment's own."""

    @property
    def rollout_rows(self) -> int:
        """Steps per environment between two updates."""
        return self.n_steps

    @model_validator(mode="before")
    @classmethod
    def _read_budget(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("max_epochs") is not None:
            # The default of max_env_steps must not end a run whose length is given in epochs.
            return {"max_env_steps": None, **data}
        return data

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.max_env_steps is None and self.max_epochs is None:
            raise ValueError("max_env_steps and max_epochs are both null: a run needs one of them")
        return self


class SeedFields(Fields):
    title = "seeds"

    seed: Seed | None = None
    """Seed of everything random in the run. Unset: drawn at the start and recorded."""
    seed_train: Seed | None = None
    """Seed of the training environments. Unset: derived from `seed`."""
    seed_val: Seed | None = None
    """Seed of the evaluations during training. Unset: derived from `seed`."""
    seed_test: Seed | None = None
    """Seed of the held-out test episodes. Unset: derived from `seed`."""


class EnvFields(Fields):
    title = "environment"

    env_kwargs: Block = {}
    """Arguments for the environment's constructor."""
    env_wrappers: Wrappers = []
    """Wrappers, innermost first: a list of {id: Name, option: value, ...}. Gymnasium's and your
    own are named by import path: {id: gymnasium.wrappers.ClipReward, max_reward: 1}."""
    obs_keys: ObsKeys | None = None
    """Parts of a Dict observation that the policy sees: a list of names, or {drop: [names]} for all
    others. Unset: all parts."""
    vectorization_mode: Literal["auto", "envpool", "vector", "sync", "async"] = "auto"
    """Engine that steps the environments. auto: the fastest one that supports the environment."""
    obs_type: Literal["rgb", "ram", "objects"] | None = None
    """What an Atari game shows: its screen, its memory (ram), or the objects on screen, which are
    known of Pong, Breakout, Boxing, Freeway, MsPacman, Alien, Asterix, Berzerk, Bowling, Gopher,
    IceHockey, Kangaroo, MontezumaRevenge, Pitfall, Seaquest, Skiing, SpaceInvaders and Tennis.
    Unset: rgb."""
    frame_stack: Count | None = None
    """Number of latest frames in an observation. Unset: the suite's default. More: shows motion,
    needs more memory."""
    frame_skip: Count | None = None
    """Number of frames each action is repeated for. Unset: the suite's default. More: faster,
    coarser control."""
    grayscale_obs: bool | None = None
    """Convert frames to grayscale. Unset: the suite's default."""
    resize_obs: FrameSize | None = None
    """Height and width that frames are resized to. true: 84 x 84. false: keep their size. Unset:
    the suite's default."""
    reward_threshold: Annotated[Float | None, live()] = None
    """Mean return that counts as solved. Unset: the threshold the environment is registered
    with."""
    env_timeout_s: PositiveFloat | None = 300.0
    """Seconds that an environment in a process of its own (vectorization_mode async) may take for
    a step or a reset, before the run stops with an error. null: no limit."""
    env_boundary_steps: Count | Literal["auto"] = "auto"
    """Env steps between fresh resets of all environments, which keep an exact resume fast. auto:
    250,000, or the longest possible episode in every environment if that is more. More: fewer
    episodes are cut, resuming takes longer."""


class EvalFields(Fields):
    title = "evaluation"

    eval_freq_epochs: Annotated[NonNegativeInt | None, live()] = 10
    """Epochs between evaluations, so every eval_freq_epochs x n_envs x n_steps env steps. null or
    0: never. Higher: less time spent, coarser curve."""
    eval_freq_steps: Annotated[Count | None, live()] = None
    """Env steps between evaluations, in place of eval_freq_epochs: evaluate at the end of the first
    epoch at or after each multiple of this number. It cannot be finer than an epoch of n_envs x
    n_steps env steps."""
    eval_warmup_epochs: Annotated[EpochsOrFraction, live()] = 0
    """Epochs before the first evaluation. A value below 1 is a fraction of the planned epochs."""
    eval_episodes: Annotated[Count | Literal["auto"], live()] = "auto"
    """Episodes per evaluation. auto: 20, or fewer (at least 2) where these would be more env steps
    than the budget of the run, or than four times those between two evaluations. A number is played
    as it is, but for a budget below that of one evaluation: then as many as fit, at least 10. More:
    a more precise score, slower."""
    eval_deterministic: Annotated[bool | Literal["auto"], live()] = "auto"
    """Actions of evaluations and of the test. true: the most likely ones (greedy). false: sampled
    ones. auto: validations measure both, and the better ones choose the checkpoint and are tested;
    greedy where sampling only explores (DQN, TD3)."""
    test_episodes: Annotated[Count | Literal["auto"], live()] = "auto"
    """Held-out episodes of the test that decides whether a run is solved. auto: 100; where the time
    limit is above 1,000 steps, as many as fit into 100,000 steps, but at least 30; never fewer than
    eval_episodes. Below the threshold on validation no more than fit into the env steps of training
    (of a number at least 10). More: a surer verdict, slower."""
    eval_frame_skip: Count | None = None
    """Number of frames each action is repeated for in evaluations and tests. Unset: as in training
    (frame_skip)."""
    n_eval_envs: Annotated[Count | None, live()] = None
    """Environments used by an evaluation. Unset: chosen by the number of episodes."""
    eval_async: bool = False
    """Evaluate in another process while training continues. A result counts when the next
    evaluation is due, so early stopping comes one evaluation later; the run stays deterministic.
    Saves time if evaluations are long and a CPU core is free."""
    video: Literal["off", "best", "every_eval"] | Count = "off"
    """Record the first episode of evaluations as a video, in a process of its own: best (those that
    are the best so far), every_eval, or a number N (every N-th). Training does not wait for it."""

    @model_validator(mode="before")
    @classmethod
    def _read_eval_freq(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("eval_freq_steps") is not None:
            return {"eval_freq_epochs": None, **data}  # the default in epochs does not apply
        return data

    @model_validator(mode="after")
    def _check_eval_freq(self) -> Self:
        if self.eval_freq_epochs is not None and self.eval_freq_steps is not None:
            raise ValueError(
                f"eval_freq_epochs {self.eval_freq_epochs} and eval_freq_steps "
                f"{self.eval_freq_steps:,} are both given: keep one of them, and remove the other "
                "or set it to null"
            )
        return self


class StopFields(Fields):
    title = "stopping"

    early_stop_on_train_threshold: Annotated[bool | Float | None, live()] = False
    """Stop when the mean training return reaches this value. true: the solved threshold. false or
    null: never. A value at or above the threshold also needs a passed test."""
    early_stop_on_eval_threshold: Annotated[bool | Float | None, live()] = True
    """Stop when an evaluation reaches this value. true: the solved threshold. false or null:
    never. A value at or above the threshold also needs a passed test; after a failed one training
    continues."""


class CheckpointFields(Fields):
    title = "checkpoints"

    checkpoint_freq_epochs: Annotated[Count | None, live()] = None
    """Epochs between periodic checkpoints. Unset: one every 20 seconds, the most work a crash can
    lose. Checkpoints never change training."""
    keep_checkpoints: Annotated[NonNegativeInt, live()] = 3
    """Number of periodic checkpoints to keep. The best and the last are always kept."""


class LoggingFields(Fields):
    title = "logging"

    log_details_freq_epochs: Annotated[Literal["auto"] | NonNegativeInt | None, live()] = "auto"
    """Epochs between rows with detailed metrics: statistics of observations, rewards, actions and
    advantages, gradient norms by part, dead units. auto: about every 4,096 env steps, and every
    8 epochs or 16,384 env steps where epochs are longer. null or 0: never. Does not change
    training."""
    monitor: Annotated[list[Literal["weights", "updates", "rank"]], live()] = []
    """More insight in the rows with details: norms of the weights by part, size of the updates
    relative to them, effective rank of the last hidden layers. Costs a copy of the weights in those
    epochs; rank also a forward pass and a decomposition. Does not change training."""
    mute_alerts: Annotated[Names, live()] = []
    """Alerts that are not raised, by name, or all. Alerts never change training."""


class SystemFields(Fields):
    title = "system"

    device: Device = "auto"
    """Device of the networks: auto, cpu, cuda, cuda:N or mps. auto: a CUDA GPU, if there is one,
    for a CNN and for large batches of a wide MLP, else the CPU."""
    n_threads: Count | Literal["auto"] = "auto"
    """CPU threads of the learner. More threads help large networks only. auto: chosen by the size
    of the largest matrix product; all CPUs for a CNN."""
    compile: Literal["auto", "native", "numpy", "fused"] | bool = "auto"
    """Record the gradient computation once and repeat it. On the CPU: as a C program (native),
    compiled in about a second by the system's C compiler and kept in the user's cache folder, or as
    NumPy calls (numpy). On a GPU: as a CUDA graph; fused: with kernels fused by torch's compiler,
    which takes about half a minute. auto: where it is faster, and native or fused if the run is
    long enough. true: always. false: plain torch."""
    perf: Literal["fast", "exact"] | None = None
    """Arithmetic on a CUDA GPU. fast: matrix products and convolutions in TF32 (10 bits of
    precision), and cuDNN tries which of its convolutions is fastest. exact: whole float32, and
    convolutions that repeat bit for bit. null: as torch has it, TF32 in convolutions only."""
    profile: Literal["kineto"] | bool = False
    """Print where the time went at the end, and write trace.json into the run folder (opens in
    ui.perfetto.dev). kineto: also kineto.json, with the operators and GPU kernels of a few epochs
    as torch.profiler sees them. Does not change training."""
    profile_epochs: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)] = [5, 3]
    """With profile: kineto: epochs that are left out at the start, and epochs that are recorded.
    More of the latter: a larger file."""
    check_finite: Annotated[bool, live()] = True
    """Stop with an error as soon as a loss, gradient or observation is not finite."""
    plugins: Names = []
    """Python modules to import first. They can register algorithms, networks, wrappers,
    environments and observers."""
    observers: Names = []
    """Observers to run, by name, in this order. Plugins register them."""
    quiet: bool = False
    """Print only the result."""
    init_from_run: str | None = None
    """Start with the weights of another run, e.g. @last/@best."""
    init_optimizer: bool = False
    """With init_from_run: also take the state of each optimiser whose parameters are all taken
    over, so that its first steps are as large as they were there. Needs the same `optimizer`."""

    @model_validator(mode="after")
    def _check_transfer(self) -> Self:
        if self.init_optimizer and self.init_from_run is None:
            raise ValueError("init_optimizer needs init_from_run: the run to take the state from")
        return self
