"""The fields that every algorithm's config has: flat, frozen, strict.

An algorithm declares its own config beside its losses and adds its fields:

    class PPOConfig(Config):
        clip_range: PositiveSchedule = Schedule.constant(0.2)
        "How far the new policy may move from the old one. Higher: larger, riskier updates."

The text under a field is its documentation everywhere: `--help`, the docs table, the JSON schema.
Bad input raises ConfigError with one line a problem. After construction everything that could be
written relatively is resolved: `n_envs: auto` is a number, a fractional batch size is a count,
`model_id` has filled `hidden_dims`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gymnasium_solver.config.explain import explain
from gymnasium_solver.config.models import ModelId, read_preset
from gymnasium_solver.config.schedule import NonNegativeSchedule, PositiveSchedule, Schedule
from gymnasium_solver.config.spec import read_spec
from gymnasium_solver.config.types import (
    BatchSize,
    Block,
    Count,
    Device,
    EnvCount,
    EpochsOrFraction,
    Float,
    FrameSize,
    HiddenDims,
    Int,
    Names,
    NonNegativeInt,
    ObsNormalization,
    PolicyKind,
    Seed,
    Wrappers,
    cpu_count,
)
from gymnasium_solver.errors import ConfigError

# The kinds of value an algorithm's own fields are declared with come along.
__all__ = [
    "BatchSize",
    "Block",
    "Config",
    "Count",
    "Float",
    "Int",
    "NonNegativeInt",
    "canonical",
    "cpu_count",
]

# Other spellings of our own fields: read, never written.
ALIASES = {
    "max_timesteps": "max_env_steps",
    "max_steps": "max_env_steps",
    "grad_clip_norm": "max_grad_norm",
    "accelerator": "device",
}


class Config(BaseModel):
    """What every run needs to know, whatever the algorithm."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    # --- identity
    env_id: str
    """Environment to solve, as Gymnasium names it, e.g. CartPole-v1."""
    algo_id: str
    """Algorithm that solves it; decides which further fields exist."""
    project_id: str | None = None
    """Name that groups runs. Unset: the name of the config file."""
    variant: str | None = None
    """Name of the block this config was read from; filled in by the loader."""
    description: str = ""
    """One line for listings."""
    spec: Block = {}
    """Facts about the environment (labels of actions and observations, rewards), checked by
    config/spec.py. One is a setting: action_space.valid, the actions that are allowed."""

    # --- rollout and budget
    n_envs: EnvCount = 8
    """Environments stepped side by side; auto = one a CPU. More: faster and less correlated data,
    but larger and staler rollouts."""
    n_steps: Count = 128
    """Steps in each environment between two updates. More: better estimates, fewer updates."""
    max_env_steps: Count | None = 100_000
    """Budget in steps over all environments together. null: no limit, `max_epochs` decides."""
    max_epochs: Count | None = None
    """Budget in epochs (n_steps rows of each env and what is learnt from them). Given without
    `max_env_steps`, it is the only limit."""
    max_episode_steps: Count | None = None
    """Time limit of an episode. Unset: the environment's own."""

    # --- seeds
    seed: Seed | None = None
    """Seed of everything random in the run. Unset: drawn at the start and recorded."""
    seed_train: Seed | None = None
    """Seed of the training environments. Unset: derived from `seed`."""
    seed_val: Seed | None = None
    """Seed of the evaluations during training. Unset: derived from `seed`."""
    seed_test: Seed | None = None
    """Seed of the evaluation after training. Unset: derived from `seed`."""

    # --- environment
    env_kwargs: Block = {}
    """Arguments for the environment's constructor."""
    env_wrappers: Wrappers = []
    """Wrappers by name, innermost first: a list of {id: Name, option: value, ...}."""
    vectorization_mode: Literal["auto", "envpool", "vector", "sync", "async"] = "auto"
    """Engine that steps the environments. auto: the fastest one that has this environment."""
    obs_type: Literal["rgb", "ram", "objects"] | None = None
    """What is seen of an Atari game: its screen, its memory, or the objects in it. Unset: rgb."""
    frame_stack: Count | None = None
    """Last observations of a game seen at once. Unset: the suite's default. More: sees motion,
    costs memory."""
    frame_skip: Count | None = None
    """Frames of a game that an action is held for. Unset: the suite's default. More: faster,
    coarser control."""
    grayscale_obs: bool | None = None
    """See a game's frames in gray. Unset: the suite's default."""
    resize_obs: FrameSize | None = None
    """Height and width that a game's frames are brought to; true: 84 x 84; false: as they are.
    Unset: the suite's default."""
    normalize_obs: ObsNormalization = False
    """Scale observations: rolling (or true) by running mean and deviation, static by the bounds of
    the space."""
    clip_obs: Annotated[Float, Field(gt=0)] = 10.0
    """Largest magnitude of a normalised observation. Raise it if rare large values matter."""
    normalize_reward: bool = False
    """Divide rewards by the running deviation of the discounted return. Scores stay raw."""
    clip_reward: Annotated[Float, Field(gt=0)] | None = 10.0
    """Largest magnitude of a normalised reward. null: no clipping."""
    reward_threshold: Float | None = None
    """Mean return that counts as solved. Unset: the one the environment is registered with."""
    env_boundary_steps: Count | Literal["auto"] = "auto"
    """Env steps between fresh environment resets, which keep an exact resume quick. auto: 250,000,
    or the longest episode in every env if that is more. More: fewer episodes cut, slower resume."""

    # --- model
    policy: PolicyKind = "auto"
    """Kind of network. auto: cnn for uint8 images, mlp for the rest."""
    model_id: ModelId | None = None
    """Preset for an mlp's `hidden_dims`: mlp_tiny 64, mlp_small 128 128, mlp_medium 256 256,
    mlp_large 512 512; or for a cnn: cnn_small (any size), cnn_nature (from 36 x 36), cnn_impala,
    cnn_large (impala twice as wide). Unset: hidden_dims; cnn_nature for images it fits, else
    cnn_small."""
    hidden_dims: HiddenDims = (64, 64)
    """Width of each hidden layer. Wider: more capacity, slower, easier to overfit."""
    cnn_channels: HiddenDims | None = None
    """Channels of each layer (cnn_small, cnn_nature) or stage (cnn_impala, cnn_large) of a cnn.
    Unset: the preset's. More: more capacity, slower by the square."""
    cnn_hidden_dims: HiddenDims | None = None
    """Width of each layer between a cnn's convolutions and its outputs. Unset: the preset's, small
    128, nature 512, impala 256, large 512."""
    activation: Literal[
        "tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu", "swish", "identity"
    ] = "tanh"
    """Non-linearity between layers."""
    share_trunk: Literal["auto"] | bool = "auto"
    """Let policy and value share their hidden layers. Smaller and faster, but they interfere. auto:
    in a cnn, not in an mlp."""
    log_std_init: Float = 0.0
    """Log of the first standard deviation of continuous actions. Higher: more exploration."""

    # --- optimisation
    policy_lr: PositiveSchedule = Schedule.constant(3e-4)
    """Learning rate. Higher: faster, until it becomes unstable."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Rule that turns gradients into steps."""
    adam_eps: Annotated[Float, Field(gt=0)] = 1e-5
    """Keeps Adam from dividing by zero. Higher: smaller steps where gradients are small."""
    weight_decay: Annotated[Float, Field(ge=0)] = 0.0
    """Pull of the weights towards zero. Higher: smaller weights."""
    max_grad_norm: Annotated[Float, Field(gt=0)] | None = 0.5
    """Longest gradient allowed; longer ones are shortened. null: no limit."""
    gamma: Annotated[Float, Field(ge=0, le=1)] = 0.99
    """Discount of future rewards. Higher: looks further ahead, with more variance."""
    ent_coef: NonNegativeSchedule = Schedule.constant(0.0)
    """Weight of the entropy bonus. Higher: explores more, converges later."""

    # --- evaluation
    eval_freq_epochs: NonNegativeInt | None = 10
    """Epochs between evaluations. null or 0: never. Higher: less time spent, coarser curve."""
    eval_warmup_epochs: EpochsOrFraction = 0
    """Epochs before the first evaluation; a fraction below 1 is a share of the planned epochs."""
    eval_episodes: Count = 20
    """Episodes in an evaluation. More: a surer score, slower."""
    eval_deterministic: bool = True
    """Evaluate with the most likely action instead of a sampled one."""
    n_eval_envs: Count | None = None
    """Environments used by an evaluation. Unset: chosen from the number of episodes."""

    # --- stopping
    early_stop_on_train_threshold: bool | Float | None = False
    """Stop when the mean training return gets there: true = the solved threshold, a number = that
    return, false or null = never."""
    early_stop_on_eval_threshold: bool | Float | None = True
    """Stop when an evaluation gets there: true = the solved threshold, a number = that return,
    false or null = never."""

    # --- checkpoints
    checkpoint_freq_epochs: Count | None = None
    """Epochs between periodic checkpoints. Unset: one every 20 seconds, which is what a crash can
    cost at most. A checkpoint never changes what is learnt."""
    keep_checkpoints: NonNegativeInt = 3
    """Periodic checkpoints kept. The best and the last are always kept."""

    # --- system
    device: Device = "auto"
    """Where the network lives: auto, cpu, cuda, cuda:N or mps. auto: a CUDA GPU for a cnn and
    for large batches of a wide MLP, where there is one, else the CPU."""
    n_threads: Count | Literal["auto"] = "auto"
    """CPU threads of the learner. More only helps large networks. auto: by the size of its largest
    matrix product, every CPU for a cnn."""
    compile: Literal["auto"] | bool = "auto"
    """Replay the update's gradient instead of running it by torch's autograd: on the CPU as a NumPy
    program recorded from the torch loss, which is faster for small networks, on a GPU as a CUDA
    graph. Takes milliseconds to prepare. auto: where it pays; false: plain torch always."""
    profile: bool = False
    """Tell at the end where the time went, and write trace.json into the run's folder, which opens
    in a browser (ui.perfetto.dev). Changes nothing of what is learnt."""
    check_finite: bool = True
    """Stop with a clear message as soon as a loss, gradient or observation is not finite."""
    plugins: Names = []
    """Python modules imported first, so that they can register wrappers and environments."""
    quiet: bool = False
    """Print only the result."""
    init_from_run: str | None = None
    """Start from the weights of another run, e.g. @last/@best."""

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise ConfigError(explain(type(self), error, data)) from None

    def replace(self, **changes: Any) -> Self:
        """A checked copy with some fields changed."""
        return type(self)(**{**dict(self), **changes})

    @property
    def rollout_rows(self) -> int:
        """Rows of the envs between two updates."""
        return self.n_steps

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return _standard_bounds(handler.resolve_ref_schema(handler(core_schema)))

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        data = canonical(data)
        if data.get("max_epochs") is not None:
            # The default budget must not cut short a run whose length is given in epochs.
            data.setdefault("max_env_steps", None)
        return data | read_preset(data)

    # Fields of all algorithms that this one has no use for: setting one is a mistake to be told.
    not_read: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _check_not_read(self) -> Self:
        for name in self.not_read:
            # Off is what it is anyway; runs of version 0.1.0 have saved it so.
            if getattr(self, name) not in (False, type(self).model_fields[name].default):
                raise ValueError(f"{name}: {self.algo_id} has no use for it; leave it out")
        return self

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        try:
            if self.spec:
                read_spec(self.spec)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_env_steps is None and self.max_epochs is None:
            raise ValueError("max_env_steps and max_epochs are both null: a run needs one of them")
        total = self.max_env_steps or (self.max_epochs or 0) * self.n_envs * self.n_steps
        for name, value in self:
            if isinstance(value, Schedule):
                try:
                    value.check(total)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        return self


def _standard_bounds(schema: Any) -> Any:
    """Pydantic writes `ge: 1` for a bound outside a validator; JSON schema calls it `minimum`."""
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    if isinstance(schema, list):
        return [_standard_bounds(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {names.get(key, key): _standard_bounds(value) for key, value in schema.items()}


def canonical(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our field names; ConfigError if one is given under two names."""
    named: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    for key, value in data.items():
        name = ALIASES.get(key, key)
        if name in named:
            raise ConfigError(f"{spelt[name]} and {key} are the same setting: give one of them")
        named[name], spelt[name] = value, key
    return named
