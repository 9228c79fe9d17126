"""The fields of a config, in small blocks. A config class is a list of blocks and its own fields.

    class PPOConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
        clip_range: PositiveSchedule = Schedule.constant(0.2)
        "Clip the probability ratio to 1 +- this value. Higher: larger, riskier updates."

A class takes only blocks whose fields it reads, so no algorithm has a field without effect. The
string under a field is its documentation in `--help`, the docs and the JSON schema. Pydantic orders
fields from the last base class to the first, so bases are listed from specific to general. It takes
a field from the first base that has it: a block that extends another one (CriticFields) comes after
a class that changes defaults of the latter.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gymnasium_solver.config.layer_list import LayerList
from gymnasium_solver.config.models import ModelId, read_preset
from gymnasium_solver.config.schedule import (
    NonNegativeSchedule,
    PositiveSchedule,
    Schedule,
    changing,
)
from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.config.types import (
    ActionDist,
    Activation,
    BatchSize,
    Block,
    Count,
    Device,
    EnvCount,
    EpochsOrFraction,
    Float,
    FrameSize,
    HeadKind,
    HiddenDims,
    Name,
    Names,
    NonNegativeInt,
    ObsKeys,
    ObsNormalization,
    OptimizerKind,
    PolicyKind,
    Seed,
    Wrappers,
)
from gymnasium_solver.errors import ConfigError

LONGEST_RECORDED = 128  # rows of a sequence; recording longer ones takes too long


class Fields(BaseModel):
    """Base of all blocks: frozen, strict, without unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    title: ClassVar[str] = ""
    """Heading of the block in `--help` and in the docs."""

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
    max_env_steps: Count | None = 100_000
    """Budget in env steps, summed over all environments. null: no limit, `max_epochs` decides."""
    max_epochs: Count | None = None
    """Budget in epochs. An epoch is n_steps in each environment and the updates that follow. Given
    without `max_env_steps`, it is the only limit."""
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
    """What an Atari game shows: its screen, its memory, or the objects on screen. Unset: rgb."""
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
    reward_threshold: Float | None = None
    """Mean return that counts as solved. Unset: the threshold the environment is registered
    with."""
    env_timeout_s: Annotated[Float, Field(gt=0)] | None = 300.0
    """Seconds that an environment in a process of its own (vectorization_mode async) may take for
    a step or a reset, before the run stops with an error. null: no limit."""
    env_boundary_steps: Count | Literal["auto"] = "auto"
    """Env steps between fresh resets of all environments, which keep an exact resume fast. auto:
    250,000, or the longest possible episode in every environment if that is more. More: fewer
    episodes are cut, resuming takes longer."""


class EvalFields(Fields):
    title = "evaluation"

    eval_freq_epochs: NonNegativeInt | None = 10
    """Epochs between evaluations, so every eval_freq_epochs x n_envs x n_steps env steps. null or
    0: never. Higher: less time spent, coarser curve."""
    eval_freq_steps: Count | None = None
    """Env steps between evaluations, in place of eval_freq_epochs: evaluate at the end of the first
    epoch at or after each multiple of this number. It cannot be finer than an epoch of n_envs x
    n_steps env steps."""
    eval_warmup_epochs: EpochsOrFraction = 0
    """Epochs before the first evaluation. A value below 1 is a fraction of the planned epochs."""
    eval_episodes: Count = 20
    """Episodes per evaluation. More: a more precise score, slower."""
    eval_deterministic: bool = True
    """Evaluate with the most likely action instead of a sampled one."""
    test_episodes: Count | Literal["auto"] = "auto"
    """Held-out episodes of the test that decides whether a run is solved. auto: 100; where the time
    limit is above 1,000 steps, as many as fit into 100,000 steps, but at least 30; never fewer than
    eval_episodes. More: a surer verdict, slower."""
    n_eval_envs: Count | None = None
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

    early_stop_on_train_threshold: bool | Float | None = False
    """Stop when the mean training return reaches this value. true: the solved threshold. false or
    null: never. A value at or above the threshold also needs a passed test."""
    early_stop_on_eval_threshold: bool | Float | None = True
    """Stop when an evaluation reaches this value. true: the solved threshold. false or null:
    never. A value at or above the threshold also needs a passed test; after a failed one training
    continues."""


class CheckpointFields(Fields):
    title = "checkpoints"

    checkpoint_freq_epochs: Count | None = None
    """Epochs between periodic checkpoints. Unset: one every 20 seconds, the most work a crash can
    lose. Checkpoints never change training."""
    keep_checkpoints: NonNegativeInt = 3
    """Number of periodic checkpoints to keep. The best and the last are always kept."""


class LoggingFields(Fields):
    title = "logging"

    log_details_freq_epochs: Literal["auto"] | NonNegativeInt | None = "auto"
    """Epochs between rows with detailed metrics: statistics of observations, rewards, actions and
    advantages, gradient norms by part, dead units. auto: about every 4,096 env steps. null or 0:
    never. Does not change training."""
    monitor: list[Literal["weights", "updates", "rank"]] = []
    """More insight in the rows with details: norms of the weights by part, size of the updates
    relative to them, effective rank of the last hidden layers. Costs a copy of the weights in those
    epochs; rank also a forward pass and a decomposition. Does not change training."""
    mute_alerts: Names = []
    """Alerts that are not raised, by name, or all. Alerts never change training."""


class SystemFields(Fields):
    title = "system"

    device: Device = "auto"
    """Device of the networks: auto, cpu, cuda, cuda:N or mps. auto: a CUDA GPU, if there is one,
    for a CNN and for large batches of a wide MLP, else the CPU."""
    n_threads: Count | Literal["auto"] = "auto"
    """CPU threads of the learner. More threads help large networks only. auto: chosen by the size
    of the largest matrix product; all CPUs for a CNN."""
    compile: Literal["auto"] | bool = "auto"
    """Record the gradient computation once and repeat it: on the CPU as a NumPy program, which is
    faster for small networks, on a GPU as a CUDA graph. Preparing it takes milliseconds. auto:
    where it is faster. false: always plain torch."""
    profile: bool = False
    """Print where the time went at the end, and write trace.json into the run folder (opens in
    ui.perfetto.dev). Does not change training."""
    check_finite: bool = True
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


class NormalizeFields(Fields):
    title = "normalisation"

    normalize_obs: ObsNormalization = "auto"
    """Normalise observations. rolling (or true): by running mean and standard deviation. static:
    by the bounds of the space. auto: rolling if random steps of the environment show large, small
    or uneven numbers, else false; decided at the start and recorded."""
    clip_obs: Annotated[Float, Field(gt=0)] = 10.0
    """Clip normalised observations to +- this value. Raise it if rare large values matter."""
    normalize_reward: bool | Literal["auto"] = "auto"
    """Divide rewards by the running standard deviation of the discounted return. Reported returns
    are never normalised. auto: if random steps of the environment show large rewards or returns;
    decided at the start and recorded."""
    clip_reward: Annotated[Float, Field(gt=0)] | None = 10.0
    """Clip normalised rewards to +- this value. null: no clipping."""

    @property
    def obs_normalization(self) -> Literal[False, "rolling", "static"]:
        """`normalize_obs`; off while `auto` is not decided (training/scales.py)."""
        return False if self.normalize_obs == "auto" else self.normalize_obs

    @property
    def scales_reward(self) -> bool:
        """`normalize_reward`; off while `auto` is not decided."""
        return self.normalize_reward is True


class NetworkFields(Fields):
    title = "network"

    policy: PolicyKind = "auto"
    """Kind of network: mlp, cnn, or a network registered by a plugin. auto: cnn for images, mlp for
    everything else."""
    model_id: ModelId | None = None
    """Preset of an MLP's `hidden_dims`: mlp_tiny 64, mlp_small 128 128, mlp_medium 256 256,
    mlp_large 512 512; or of a CNN: cnn_small (any image size), cnn_nature (from 36 x 36),
    cnn_impala, cnn_large (impala, twice as wide). Unset: hidden_dims for an MLP; for a CNN
    cnn_nature if the image is large enough, else cnn_small."""
    hidden_dims: HiddenDims = (64, 64)
    """Width of each hidden layer. Wider: more capacity, slower, easier to overfit."""
    cnn_channels: HiddenDims | None = None
    """Channels of each layer (cnn_small, cnn_nature) or stage (cnn_impala, cnn_large) of a CNN.
    Unset: the preset's. More: more capacity; the cost grows with the square."""
    cnn_hidden_dims: HiddenDims | None = None
    """Width of each layer between a CNN's convolutions and its outputs. Unset: the preset's: small
    128, nature 512, impala 256, large 512."""
    activation: Activation = "tanh"
    """Activation function of the hidden layers."""
    layers: LayerList = None
    """Hidden layers one by one, in place of hidden_dims: linear, conv, pool, layer_norm, rms_norm,
    dropout, residual, simnorm, and activations by name. gsolve net prints them."""
    init: Literal["auto", "orthogonal", "kaiming", "xavier", "uniform"] = "auto"
    """Initial weights of the hidden layers. auto: orthogonal for policy gradients, uniform in
    +-1/sqrt(inputs) for value-based methods."""
    init_gain: Annotated[Float, Field(gt=0)] = 1.0
    """Factor of the initial weights, if `init` is not auto."""
    zero_last: bool = False
    """Start with zeros in the output layers: values of 0 and a uniform policy."""
    head: HeadKind = "linear"
    """Output layer of the networks: linear, or a head registered by a plugin."""

    @property
    def widest_layer(self) -> int:
        """Width of the widest hidden layer of an MLP."""
        return max(self.hidden_dims, default=0)

    @model_validator(mode="before")
    @classmethod
    def _read_preset(cls, data: Any) -> Any:
        return {**data, **read_preset(data)} if isinstance(data, Mapping) else data


class LearningFields(Fields):
    title = "optimisation"

    policy_lr: PositiveSchedule = Schedule.constant(3e-4)
    """Learning rate. Higher: faster, until it becomes unstable."""
    optimizer: OptimizerKind = "adam"
    """Optimiser of all networks. rmsprop_tf: as TensorFlow has it, with epsilon inside the root and
    short first steps."""
    adam_eps: Annotated[Float, Field(gt=0)] = 1e-5
    """Epsilon of Adam's denominator. Higher: smaller steps where gradients are small."""
    adam_beta1: Annotated[Float, Field(ge=0, lt=1)] = 0.9
    """Decay of Adam's mean of the gradients. Higher: smoother, slower to turn."""
    adam_beta2: Annotated[Float, Field(ge=0, lt=1)] = 0.999
    """Decay of Adam's mean of the squared gradients."""
    momentum: Annotated[Float, Field(ge=0, lt=1)] = 0.0
    """Momentum of sgd."""
    weight_decay: Annotated[float, changing(ge=0)] = 0.0
    """Weight decay. Higher: smaller weights."""
    max_grad_value: Annotated[Float, Field(gt=0)] | None = None
    """Clip every entry of the gradient to +- this value, before its norm. null: no clipping."""
    max_grad_norm: Annotated[float, changing(gt=0)] | None = 0.5
    """Clip the gradient norm to this value. null: no clipping."""
    gamma: Annotated[float, changing(ge=0, le=1)] = 0.99
    """Discount factor. Higher: looks further ahead, with more variance."""


class MinibatchFields(BudgetFields):
    title = "minibatches"

    batch_size: BatchSize = 64
    """Samples per minibatch, or a fraction in (0, 1] of the rollout (1.0: the whole rollout; 1: one
    sample). Larger: less noisy gradients, fewer gradient steps from the same data."""

    @property
    def gradient_samples(self) -> int:
        """Samples in one gradient step."""
        return self.batch_size

    def notices(self) -> list[str]:
        """Settings that are valid but have no effect as written, one line each."""
        rollout = self.n_envs * self.rollout_rows
        if self.batch_size <= rollout:
            return super().notices()
        return [
            *super().notices(),
            f"batch_size {self.batch_size:,} is larger than the rollout (n_envs x n_steps = "
            f"{rollout:,} samples): each minibatch is the whole rollout",
        ]


class RecurrentFields(Fields):
    title = "memory"

    recurrent: Literal["gru", "lstm", "rnn"] | None = None
    """Recurrent core after the hidden layers, which remembers what is no longer observed. Learns
    from sequences, which is slower. null: none."""
    recurrent_dim: Count = 64
    """Width of the recurrent core. Wider: remembers more, slower."""
    sequence_length: Count | None = 16
    """Rows of a sequence that a recurrent network learns from: gradients go back this many steps.
    Memory itself lasts longer: each sequence starts with the state that the acting policy had
    there. Longer: learns to use older observations, slower. null: the whole rollout."""

    @property
    def has_short_sequences(self) -> bool:
        """Whether sequences are short enough for recorded gradients; also without memory."""
        length = self.sequence_length
        return self.recurrent is None or (length is not None and length <= LONGEST_RECORDED)

    def notices(self) -> list[str]:
        changed = self.sequence_length != type(self).model_fields["sequence_length"].default
        if self.recurrent is not None or not changed:
            return super().notices()
        text = "sequence_length has no effect without a recurrent core (recurrent: gru)"
        return [*super().notices(), text]


class ActorCriticFields(RecurrentFields):
    title = "actor and critic"

    share_trunk: Literal["auto"] | bool = "auto"
    """Share the hidden layers between policy and value function. Smaller and faster, but the two
    interfere. auto: shared in a CNN and in a recurrent network, separate in an MLP."""
    action_dist: ActionDist = "auto"
    """Distribution of actions. Real-valued (Box): gaussian (the same deviation in all states),
    gaussian_state (learnt per state), squashed (the latter through tanh into the bounds), beta (on
    the bounds), multivariate (correlated). Discrete: categorical, gumbel (relaxed one-hot). auto:
    gaussian, categorical, or one per choice or bit."""
    gumbel_temperature: Annotated[Float, Field(gt=0)] = 1.0
    """Temperature of gumbel: lower is closer to one-hot."""
    log_std_init: Float = 0.0
    """Initial log standard deviation of continuous actions. Higher: more exploration."""
    ent_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Weight of the entropy bonus. Higher: explores more, converges later."""


class CriticFields(NetworkFields):
    """For algorithms whose critics are networks apart from the actor."""

    title = "critics"

    critic_lr: PositiveSchedule | None = None
    """Learning rate of the critics. null: same as policy_lr."""
    critic_hidden_dims: HiddenDims | None = None
    """Width of each hidden layer of the critics. null: same as hidden_dims."""

    @property
    def widest_layer(self) -> int:
        return max(super().widest_layer, *(self.critic_hidden_dims or (0,)))
