"""The settings of TD-MPC2."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from gymnasium_solver.algos.configs.world_models import Dim, WorldModelConfig
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule, changing
from gymnasium_solver.config.types import Count, Float, NonNegativeInt

MANY_ACTIONS, MORE_ITERATIONS = 20, 2  # so many components are planned in more iterations
RHO, EPISODIC_RHO = 0.5, 0.7

Positive = Annotated[Float, Field(gt=0)]
NonNegative = Annotated[Float, Field(ge=0)]


class ModelSize(NamedTuple):
    enc_dim: int
    enc_layers: int
    mlp_dim: int
    latent_dim: int
    n_critics: int


SIZES = {
    "1M": ModelSize(256, 2, 384, 128, 2),
    "5M": ModelSize(256, 2, 512, 512, 5),
    "19M": ModelSize(1024, 3, 1024, 768, 5),
    "48M": ModelSize(1792, 4, 1792, 768, 5),
}
# Fields of other algorithms' networks and replays, which have no meaning here.
WITHOUT = {
    "hidden_dims": "set mlp_dim, enc_dim and latent_dim",
    "block": "hidden layers are linear, layer norm and mish",
    "norm": "hidden layers are linear, layer norm and mish",
    "head": "its output layers are fixed",
    "prioritized": "subsequences are drawn uniformly",
    "combined_replay": "subsequences are drawn uniformly",
    "her": "subsequences keep the goals of their episode",
}


class TDMPC2Config(WorldModelConfig):
    sizes: ClassVar[dict[str, Any]] = SIZES
    without: ClassVar[dict[str, str]] = WITHOUT
    defaults: ClassVar[dict[str, Any]] = {
        "buffer_size": 1_000_000,
        "max_grad_norm": 20.0,
        "activation": "mish",
        "normalize_obs": False,
    }

    batch_size: Annotated[Count, live(), searched("pow2:32..512", main=True)] = 256
    """Subsequences per gradient step, each of `plan_horizon` steps. Larger: less noisy, slower."""
    pretrain_updates: Literal["auto"] | NonNegativeInt = "auto"
    """Gradient steps before the first planned action, beyond those that are due. auto: one for each
    of the `learning_starts` random steps, of which five episodes, and at least 1,000, are usual."""

    # --- model
    model_size: Literal["1M", "5M", "19M", "48M"] = "5M"
    """Number of parameters, which sets the dimensions below: 1M for easy tasks and for a CPU, 5M
    for most. Larger: more capacity, slower to learn from and to plan with."""
    enc_dim: Dim = None
    """Width of the encoder's hidden layers, for observations that are no images. null: by
    model_size."""
    enc_layers: Dim = None
    """Layers of the encoder, the one to the latent state included. null: by model_size."""
    mlp_dim: Dim = None
    """Width of the two hidden layers of dynamics, rewards, terminations, policy and critics. null:
    by model_size."""
    latent_dim: Dim = None
    """Width of the latent state, a multiple of simnorm_dim. null: by model_size."""
    n_critics: Annotated[Count, Field(ge=2)] | None = None
    """Number of critics; targets take the lower of two random ones. null: by model_size."""
    simnorm_dim: Count = 8
    """Units of a group of the latent state, which are positive and add up to 1. Larger: denser."""
    dropout: Annotated[Float, Field(ge=0, lt=1)] = 0.01
    """Share of the critics' first hidden units that are dropped in learning."""
    n_atoms: Annotated[Count, Field(ge=2)] = 101
    """Number of bins for rewards and values."""
    v_min: Float = -10.0
    """Lowest bin, on the scale of symlog: sign(v) log(1 + |v|). -10 is a value of -22,025."""
    v_max: Float = 10.0
    """Highest bin, on the scale of symlog."""
    image_shift: NonNegativeInt = 3
    """Images are shifted by up to this many pixels at random in learning. 0: not at all."""

    # --- losses
    episodic: bool = True
    """Predict terminations, and plan with them. false: for tasks that only a time limit ends, such
    as those of dm_control, which saves a network."""
    plan_horizon: Annotated[Count, searched("int:2..5")] = 3
    """Steps of a subsequence and of a plan. More: sees further, model errors add up, slower."""
    rho: Literal["auto"] | Annotated[Float, Field(gt=0, le=1)] = "auto"
    """Weight of a step in the losses, compared with the step before. auto: 0.5, or 0.7 with
    episodic. Higher: later steps of the latent rollout count more."""
    consistency_coef: NonNegative = 20.0
    """Weight of the error of predicted latent states."""
    reward_coef: NonNegative = 0.1
    """Weight of the loss of predicted rewards."""
    critic_coef: NonNegative = 0.1
    """Weight of the critics' loss."""
    termination_coef: NonNegative = 1.0
    """Weight of the loss of predicted terminations, with episodic."""
    ent_coef: NonNegativeSchedule = Schedule.constant(1e-4)
    """Weight of the entropy in the policy's loss, where values are scaled to a spread of at most 1.
    Higher: plans start from more varied actions."""
    enc_lr_scale: Positive = 0.3
    """Learning rate of the encoder, as a share of policy_lr."""
    tau: Annotated[float, changing(gt=0, le=1), searched("log:0.003..0.05")] = 0.01
    """Polyak factor of the target critics at every update. Higher: faster, less stable."""

    # --- planning
    n_samples: Annotated[Count, Field(ge=2)] = 512
    """Action sequences that a plan compares in each iteration. More: better plans, slower."""
    n_policy_samples: NonNegativeInt = 24
    """How many of them the learnt policy proposes. 0: none."""
    n_elites: Count = 64
    """Best sequences, from which the next iteration's distribution is made. Fewer: greedier."""
    plan_iterations: Literal["auto"] | Count = "auto"
    """Iterations of a plan. auto: 6, and 8 for actions of 20 components or more. More: better
    plans, slower."""
    plan_std_min: Positive = 0.05
    """Smallest standard deviation of sampled actions, where 1 is half of their range. It is also
    the exploration that remains. Higher: explores more."""
    plan_std_max: Positive = 2.0
    """Standard deviation of sampled actions in the first iteration, and at most."""
    plan_temperature: Positive = 0.5
    """How much better sequences weigh more among the elites. Higher: greedier."""

    @model_validator(mode="after")
    def _check_tdmpc2(self) -> Self:
        if self.size.latent_dim % self.simnorm_dim:
            raise ValueError(
                f"latent_dim {self.size.latent_dim} is not a multiple of simnorm_dim "
                f"{self.simnorm_dim}"
            )
        if self.v_max <= self.v_min:
            raise ValueError(f"v_max {self.v_max} must be above v_min {self.v_min}")
        if self.n_elites > self.n_samples:
            raise ValueError(f"n_elites {self.n_elites} exceeds n_samples {self.n_samples}")
        if self.n_policy_samples >= self.n_samples:
            raise ValueError(
                f"n_policy_samples {self.n_policy_samples} must be below n_samples {self.n_samples}"
            )
        if self.plan_std_max < self.plan_std_min:
            raise ValueError(
                f"plan_std_max {self.plan_std_max} is below plan_std_min {self.plan_std_min}"
            )
        return self

    @property
    def rows_needed(self) -> tuple[int, str]:
        return self.plan_horizon, f"a subsequence of plan_horizon {self.plan_horizon}"

    @property
    def widest_layer(self) -> int:
        size = self.size
        return max(size.enc_dim, size.mlp_dim, size.latent_dim)

    @property
    def gradient_samples(self) -> int:
        return self.batch_size * self.plan_horizon

    @property
    def step_weight(self) -> float:
        """`rho`, if it is a number."""
        if self.rho != "auto":
            return float(self.rho)
        return EPISODIC_RHO if self.episodic else RHO

    @property
    def first_updates(self) -> int:
        return self.learning_starts if self.pretrain_updates == "auto" else self.pretrain_updates

    def iterations(self, n_components: int) -> int:
        """Iterations of a plan for actions of so many components."""
        if self.plan_iterations != "auto":
            return int(self.plan_iterations)
        return 6 + MORE_ITERATIONS * (n_components >= MANY_ACTIONS)
