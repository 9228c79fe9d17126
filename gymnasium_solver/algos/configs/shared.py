"""Settings that several algorithms share: of a replay, of soft and deterministic actor-critics, of
self-imitation."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from gymnasium_solver.config.blocks import Fields
from gymnasium_solver.config.learner_blocks import CriticFields, CriticKeysFields, RecurrentFields
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.nested import HerField
from gymnasium_solver.config.schedule import (
    EXPECTED,
    NonNegativeSchedule,
    PositiveSchedule,
    Schedule,
    Scheduled,
    at_start,
    changing,
    scheduled,
)
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.config.types import Count, EnvCount, Float, NonNegativeInt

NoiseType = Literal["gaussian", "ou"]

# Where a learnt temperature starts. The entropy of discrete actions is positive, so each step earns
# up to alpha * log(n): with an alpha of 1 that exceeds most rewards, and the policy avoids goals
# that end an episode until alpha has fallen. Normalised rewards are small, as returns have a size
# of 1.
FIRST_ALPHA, LOW_FIRST_ALPHA = 1.0, 0.01

_AUTO = re.compile(r"auto(?:_([0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+))?")
_AUTO_EXPECTED = "auto, auto_NUMBER (initial value, > 0)"


def _check_auto(text: str) -> str:
    match = _AUTO.fullmatch(text)
    if match is None or (match[1] and float(match[1]) <= 0):
        raise ValueError(f"expected {_AUTO_EXPECTED} or {EXPECTED} with values >= 0")
    return text


Auto = Annotated[
    str,
    AfterValidator(_check_auto),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{_AUTO.pattern}$", "x-expected": _AUTO_EXPECTED}
    ),
]


class OffPolicyConfig(LearnerConfig):
    defaults: ClassVar[dict[str, Any]] = {
        "hidden_dims": (256, 256),
        "activation": "relu",
        "adam_eps": 1e-8,
    }

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
    """Learning rate. Higher: faster, until it becomes unstable."""
    batch_size: Annotated[Count, live(), searched("pow2:32..512", main=True)] = 256
    """Transitions per gradient step. Larger: less noisy, slower."""

    # --- replay
    buffer_size: Annotated[Count, searched("10_000,100_000,1_000_000")] = 100_000
    """Capacity of the replay buffer in transitions, over all environments. More: more varied, older
    data."""
    learning_starts: Annotated[NonNegativeInt, live(), searched("100,1000,5000,10000")] = 1000
    """Env steps with random actions before the first update. More: more varied initial data."""
    train_freq: Annotated[Count, searched("pow2:1..16")] = 1
    """Env steps between two rounds of updates, at least one per environment. More: fewer, longer
    rounds, which is faster; the number of updates stays the same."""
    updates_per_step: Annotated[float, changing(gt=0), searched("0.25,0.5,1.0,2.0")] = 1.0
    """Gradient steps per env step, for any n_envs. More: better use of the data, slower, until it
    overfits the replay."""
    n_step: Annotated[Count, live(), searched("int:1..5")] = 1
    """Rewards summed before the bootstrapped value in the target (n-step returns). 1: one-step TD.
    More: rewards propagate faster, with more variance and off-policy bias. Not the n_steps of an
    epoch."""
    prioritized: bool = False
    """Prioritised replay: sample transitions by their last TD error instead of uniformly."""
    per_alpha: Annotated[float, changing(ge=0, le=1)] = 0.6
    """Exponent of the priorities: 0 is uniform, 1 is proportional to the error."""
    per_beta: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse({"start": 0.4, "end": 1})
    """Exponent of the importance weights that correct prioritised sampling: 0 none, 1 full."""
    per_eps: Annotated[Float, Field(gt=0), live()] = 1e-6
    """Added to every priority, so that every transition can be sampled."""
    combined_replay: Annotated[bool, live()] = False
    """Combined replay: include the newest transitions in every batch (Zhang and Sutton 2017)."""
    reset_every: Count | None = None
    """Gradient steps between two resets of the networks: new weights, moments cleared, target
    networks copied; the replay and the statistics of observations and rewards are kept. Against
    overfitting to early data with many updates per step (SR-SAC, BRO). They come after the round of
    updates in which the number is reached. null: none."""
    shrink_perturb: Annotated[Float, Field(gt=0, lt=1)] | None = None
    """With reset_every: the share of the weights that a reset keeps, the rest being new ones
    (shrink and perturb). Higher: forgets less. null: all weights are new."""
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
        if self.shrink_perturb is not None and self.reset_every is None:
            raise ValueError("shrink_perturb is part of a reset: set reset_every, such as 100_000")
        if self.replay_on_gpu is True and self.her is not None:
            raise ValueError("her computes goals on the host: remove replay_on_gpu or her")
        if self.replay_on_gpu is True and getattr(self, "recurrent", None) is not None:
            raise ValueError("sequences are taken on the host: remove replay_on_gpu or recurrent")
        return self

    @property
    def gradient_samples(self) -> int:
        return self.batch_size

    @property
    def gradients_per_env_step(self) -> float:
        return float(at_start(self.updates_per_step))

    @property
    def rollout_rows(self) -> int:
        return min(self.n_steps, max(1, self.train_freq // self.n_envs))


class ReplaySequenceFields(RecurrentFields):
    """Memory of algorithms with a replay, which learn from sequences of it. Before OffPolicyConfig
    in the order of parents."""

    burn_in: Annotated[NonNegativeInt, live()] = 8
    """With memory: rows before each sequence that only bring the state of the recurrent core up to
    date. More: less stale states, slower. 0: the stored state as it is."""

    def without_memory(self) -> dict[str, bool]:
        """What a recurrent core does not work with, and whether it is set."""
        config: Any = self
        return {"her": config.her is not None, "combined_replay": config.combined_replay}

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        config: Any = self
        if self.recurrent is None:
            return self
        for name, is_on in self.without_memory().items():
            if is_on:
                raise ValueError(f"recurrent: {self.recurrent} cannot be combined with {name}")
        if self.sequence_length is None:
            raise ValueError(
                "sequence_length: null means whole rollouts; with a replay give a number"
            )
        rows, needed = config.buffer_size // config.n_envs, self.burn_in + self.sequence_length
        if rows < needed:
            raise ValueError(
                f"buffer_size {config.buffer_size:,} holds {rows} rows of {config.n_envs} envs, "
                f"less than a sequence of burn_in + sequence_length = {needed}: raise buffer_size"
            )
        return self


class BatchNormFields(ReplaySequenceFields):
    """Batch norm, for actors and critics that are separate networks."""

    block: Literal["mlp", "simba", "simbav2", "flash"] = "mlp"
    """What hidden layers are made of. simba: residual blocks with layer norm, all of one width,
    each with four times as many units inside (Lee et al. 2025). simbav2: such blocks with features
    and weights on a unit sphere. flash: with batch norm and weights of length 1 (FlashSAC)."""
    norm: Literal["layer", "rms", "batch"] | None = None
    """Normalise the outputs of each hidden layer: layer (LayerNorm), rms (RMSNorm), or batch, of
    the inputs too; then (s, a) and (s', a') pass the critics together (XQC). More stable, a little
    slower."""

    def without_memory(self) -> dict[str, bool]:
        # Rows after the end of an episode would be in the statistics of batch norm.
        return super().without_memory() | {
            "norm: batch (use norm: layer)": self.norm == "batch",
            "block: flash (use block: simba)": self.block == "flash",
        }


class SoftConfig(CriticKeysFields, OffPolicyConfig, CriticFields):
    defaults: ClassVar[dict[str, Any]] = {"buffer_size": 1_000_000, "max_grad_norm": None}

    n_critics: Count = 2
    """Number of critics; the lowest value is used. More: less overestimation, slower."""
    noise_correlation: Annotated[Float, Field(ge=0, lt=1)] = 0.0
    """Correlation of the exploration noise between steps; for discrete actions the probability to
    keep the noise. Higher: keeps a direction for longer, which finds rewards that independent noise
    does not."""

    # --- entropy
    ent_coef: Auto | NonNegativeSchedule = "auto"
    """Weight of the entropy (alpha). auto: learned, starting at 1, or at 0.01 for discrete actions
    and for normalised rewards; auto_0.1: learned, starting there; or a number or schedule. Higher:
    explores more, converges later."""
    target_entropy: Literal["auto"] | Scheduled = "auto"
    """Target entropy of a learned weight, in nats. auto: minus the number of action components; for
    discrete actions target_entropy_ratio of the maximum. Higher: explores more."""
    target_entropy_ratio: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.constant(0.3)
    """Discrete actions: target_entropy auto is this fraction of the maximum entropy. Higher:
    explores more; the paper's 0.98 is nearly uniform."""
    alpha_lr: PositiveSchedule | None = None
    """Learning rate of alpha. null: same as policy_lr."""
    alpha_loss: Literal["log_alpha", "alpha"] = "log_alpha"
    """What is multiplied by entropy - target entropy in the loss of a learned alpha. log_alpha: as
    in SB3. alpha: as in the paper, CleanRL and the presets; with Adam a falling alpha falls
    slower, a rising one rises faster."""
    log_alpha_min: Annotated[Float | None, live()] = None
    """Lower bound of the log of a learned alpha. null: no bound."""
    log_alpha_max: Annotated[Float | None, live()] = None
    """Upper bound of the log of a learned alpha. null: no bound. Set it if values explode."""

    def first_alpha(self, *, is_discrete: bool) -> float | None:
        """Initial value of a learnt temperature; None if it is not learnt."""
        if not isinstance(self.ent_coef, str):
            return None
        match = _AUTO.fullmatch(self.ent_coef)
        if match and match[1]:
            return float(match[1])
        return LOW_FIRST_ALPHA if is_discrete or self.scales_reward else FIRST_ALPHA


class DeterministicConfig(BatchNormFields, CriticKeysFields, OffPolicyConfig, CriticFields):
    defaults: ClassVar[dict[str, Any]] = {"buffer_size": 1_000_000, "max_grad_norm": None}

    tau: Annotated[float, changing(gt=0, le=1), searched("log:0.001..0.05", main=True)] = 0.005
    """Polyak factor of the target networks at each of their updates. Higher: faster, less
    stable."""
    exploration_noise: Annotated[NonNegativeSchedule, searched("log:0.03..0.5", main=True)] = (
        Schedule.constant(0.1)
    )
    """Standard deviation of the exploration noise, where 1 is half the range of an action. Higher:
    explores more."""
    exploration_noise_type: NoiseType = "gaussian"
    """gaussian: independent in every step. ou: correlated (Ornstein-Uhlenbeck), keeps a direction
    for longer; its standard deviation over time is about twice exploration_noise."""


class SelfImitationFields(RecurrentFields):
    title = "self-imitation"

    sil: Annotated[bool, live()] = False
    """Self-imitation: learn again from own episodes that did better than the critic expects. Helps
    where rewards are rare."""
    sil_updates: Annotated[Count, live()] = 10
    """Gradient steps of self-imitation after each update. More: imitates harder, slower."""
    sil_batch_size: Annotated[Count, live()] = 512
    """Rows per step of self-imitation."""
    sil_buffer_size: Count = 50_000
    """Rows that the memory of good episodes holds; the oldest are replaced."""
    sil_coef: Annotated[Float, Field(gt=0), live()] = 0.1
    """Weight of the loss of self-imitation. Higher: repeats successes more strongly."""
    sil_vf_coef: Annotated[Float, Field(ge=0), live()] = 0.01
    """Weight of the value in that loss."""
    sil_elite: Annotated[Annotated[Float, Field(gt=0, le=1)] | None, live()] = None
    """Keep only episodes among this share of the best of the last 100, like the elites of the
    cross-entropy method. null: every episode with a positive reward."""

    @model_validator(mode="after")
    def _check_sil(self) -> Self:
        if self.sil and self.recurrent is not None:
            raise ValueError(
                f"sil repeats single steps, which recurrent: {self.recurrent} cannot learn from: "
                "remove one of them"
            )
        return self


class DatasetFields(Fields):
    title = "demonstrations"

    dataset: str | None = None
    """Demonstrations to learn from: a folder that gsolve record or Minari wrote, the id of a Minari
    dataset on this machine, or .npz files of gsolve play."""
    dataset_top: Annotated[Float, Field(gt=0, le=1)] | None = None
    """Learn only from this share of the episodes, those with the highest returns. null: from all.
    Lower: better but fewer examples."""
    dataset_held_out: Annotated[Float, Field(ge=0, lt=1)] = 0.1
    """Share of the episodes that are not learnt from: the loss on them shows overfitting."""
