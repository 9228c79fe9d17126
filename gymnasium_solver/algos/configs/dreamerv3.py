"""The settings of DreamerV3."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from gymnasium_solver.algos.configs.world_models import Dim, WorldModelConfig
from gymnasium_solver.config.learner_blocks import GradNorm
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import (
    NonNegativeSchedule,
    PositiveSchedule,
    Schedule,
    changing,
)
from gymnasium_solver.config.types import Activation, Count, Float, ObsNormalization

NonNegative = Annotated[Float, Field(ge=0)]


class ModelSize(NamedTuple):
    deter_dim: int
    core_dim: int
    n_classes: int
    units: int
    cnn_depth: int


SIZES = {
    "1m": ModelSize(512, 64, 4, 64, 4),
    "12m": ModelSize(2048, 256, 16, 256, 16),
    "25m": ModelSize(3072, 384, 24, 384, 24),
    "50m": ModelSize(4096, 512, 32, 512, 32),
    "100m": ModelSize(6144, 768, 48, 768, 48),
    "200m": ModelSize(8192, 1024, 64, 1024, 64),
}
# Fields of other algorithms' networks and replays, which have no meaning here.
WITHOUT = {
    "hidden_dims": "set deter_dim, core_dim and units",
    "activation": "hidden layers are linear, RMS norm and SiLU",
    "block": "hidden layers are linear, RMS norm and SiLU",
    "norm": "hidden layers are linear, RMS norm and SiLU",
    "layers": "hidden layers are linear, RMS norm and SiLU",
    "model_id": "set model_size",
    "cnn_channels": "set cnn_depth",
    "cnn_hidden_dims": "set units",
    "input_dims": "all parts of an observation have the same layers",
    "head": "its output layers are fixed",
    "n_step": "returns are mixed over all steps (td_lambda)",
    "prioritized": "sequences are drawn uniformly",
    "combined_replay": "sequences are drawn uniformly",
    "her": "sequences keep the goals of their episode",
}


class DreamerV3Config(WorldModelConfig):
    sizes: ClassVar[dict[str, Any]] = SIZES
    without: ClassVar[dict[str, str]] = WITHOUT
    defaults: ClassVar[dict[str, Any]] = {"optimizer": "laprop", "adam_eps": 1e-20, "agc": 0.3}

    batch_size: Annotated[Count, live(), searched("pow2:8..32", main=True)] = 16
    """Sequences per gradient step, each of `sequence_length` rows. Larger: less noisy, slower."""
    sequence_length: Annotated[Count, Field(ge=2), live()] = 64
    """Rows of a sequence: gradients go back this many steps. Memory itself lasts longer: a sequence
    starts with the state that the acting policy had there. Longer: learns to remember longer,
    slower."""
    updates_per_step: Annotated[float, changing(gt=0), searched("0.125,0.25,0.5,1.0")] = 0.5
    """Gradient steps per env step, for any n_envs. The train ratio of the paper, replayed rows per
    env step, is this times batch_size times sequence_length: 512 by default. More: better use of
    the data, slower."""
    buffer_size: Count = 1_000_000
    """Capacity of the replay buffer in transitions, over all environments. A state of the model is
    stored with each, 1.3 kB in size 1m and 5 kB in size 12m."""
    policy_lr: Annotated[PositiveSchedule, searched("log:1e-5..1e-3", main=True)] = (
        Schedule.constant(4e-5)
    )
    """Learning rate of all networks. The paper's 4e-5 is for large models; small ones learn faster
    with 1e-4 to 1e-3. Higher: faster learning, until it becomes unstable."""
    max_grad_norm: GradNorm = None
    """Clip the norm of the whole gradient to this value, after agc. null: no clipping."""
    gamma: Annotated[
        float, changing(ge=0, le=1, auto=True), searched("logit:0.9..0.9995", main=True)
    ] = 0.997
    """Discount factor: the model learns it with the continuation of episodes. Higher: looks further
    ahead, with more variance. auto: 1 - 5 / T for a time limit of T decisions, at least 0.95 and at
    most 0.995; set at the start and recorded."""
    activation: Annotated[Activation, searched("")] = "silu"
    """Not read: hidden layers have SiLU."""
    normalize_obs: ObsNormalization = False
    """Normalise observations that are no images. rolling (or true): by running mean and standard
    deviation. static: by the bounds of the space. auto: rolling if random steps show large or
    uneven numbers. They are squashed by symlog in any case, so this is rarely needed."""

    # --- model
    model_size: Literal["1m", "12m", "25m", "50m", "100m", "200m"] = "12m"
    """Number of parameters, which sets the dimensions below: 1m for numbers as observations and for
    easy tasks, 12m and more for images. Larger: more capacity, slower."""
    deter_dim: Dim = None
    """Width of the recurrent memory, a multiple of n_blocks. null: by model_size."""
    core_dim: Dim = None
    """Width of the layers around the recurrent memory. null: by model_size."""
    n_classes: Annotated[Count, Field(ge=2)] | None = None
    """Classes of each latent variable. null: by model_size."""
    units: Dim = None
    """Width of the hidden layers of encoder, decoder, rewards, continuation, actor and critic.
    null: by model_size."""
    cnn_depth: Dim = None
    """Channels of the convolutions are 2, 3, 4 and 4 times this. null: by model_size."""
    n_latents: Count = 32
    """Categorical variables of a state. More: remembers more details of an observation."""
    n_blocks: Count = 8
    """Blocks of the GRU's weights: memory of different blocks mixes through small layers only,
    which makes a wide memory cheap."""
    unimix: Annotated[Float, Field(ge=0, lt=1)] = 0.01
    """Share of a uniform distribution in the latents: none is ever impossible."""
    n_atoms: Annotated[Count, Field(ge=3)] = 255
    """Number of bins for rewards and values, odd: they are symmetric around 0."""

    # --- losses
    dyn_coef: NonNegative = 1.0
    """Weight of the loss that moves the prior of the latents towards their posterior."""
    rep_coef: NonNegative = 0.1
    """Weight of the loss that moves the posterior towards the prior. Higher: latents are easier to
    predict, and tell less."""
    free_nats: NonNegative = 1.0
    """Both losses stop below this many nats. Higher: latents tell more of an observation."""
    decoder_free: bool = False
    """Images are not reconstructed (R2-Dreamer): states learn to correlate with the encoder's
    outputs instead. Faster, and the model is not spent on what is large in an image but of no use.
    The inspector then has nothing to show of what the model imagines."""
    barlow_coef: NonNegative = 0.05
    """Weight of that loss, with decoder_free."""
    replay_critic_coef: NonNegative = 0.3
    """Weight of the critic's loss on returns of the replay, added to that on imagined ones."""
    imagination_steps: Annotated[Count, searched("int:10..20")] = 15
    """Steps that are imagined from each replayed state. More: sees further, model errors add up,
    slower."""
    td_lambda: Annotated[Float, Field(ge=0, le=1)] = 0.95
    """Mixes imagined returns: 0 is one step and the critic, 1 all imagined steps."""
    ent_coef: Annotated[NonNegativeSchedule, searched("log:1e-4..1e-2")] = Schedule.constant(3e-4)
    """Weight of the entropy in the actor's loss, where returns are scaled to a spread of at most 1.
    Higher: explores more, converges later."""
    tau: Annotated[float, changing(gt=0, le=1), searched("log:0.003..0.05")] = 0.02
    """Polyak factor of the slow critic at every update, which holds the critic back. Higher: it
    moves faster."""

    @model_validator(mode="after")
    def _check_dreamerv3(self) -> Self:
        if self.size.deter_dim % self.n_blocks:
            raise ValueError(
                f"deter_dim {self.size.deter_dim} is not a multiple of n_blocks {self.n_blocks}"
            )
        if self.n_atoms % 2 == 0:
            raise ValueError(f"n_atoms {self.n_atoms} must be odd: one bin is 0")
        return self

    @property
    def rows_needed(self) -> tuple[int, str]:
        n = self.sequence_length
        return n + 1, f"a sequence of {n} and one before it"

    @property
    def widest_layer(self) -> int:
        size = self.size
        return max(size.deter_dim, size.core_dim, size.units)

    @property
    def gradient_samples(self) -> int:
        return self.batch_size * self.sequence_length * (1 + self.imagination_steps)
