"""The blocks of fields (see blocks.py) for algorithms that learn: normalisation, networks,
optimisation, minibatches, memory, actor and critic."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gymnasium_solver.config.blocks import BudgetFields, Fields
from gymnasium_solver.config.layer_list import LayerList
from gymnasium_solver.config.marks import live, searched
from gymnasium_solver.config.schedule import (
    NonNegativeSchedule,
    PositiveSchedule,
    Schedule,
    changing,
)
from gymnasium_solver.config.types import (
    OPTIMIZERS,
    ActionDist,
    Activation,
    BatchSize,
    Block,
    Count,
    Float,
    HeadKind,
    HiddenDims,
    Int,
    Name,
    Names,
    ObsNormalization,
    OptimizerKind,
    PartDims,
    PolicyKind,
    PositiveFloat,
    layers,
)

# Network presets (`model_id`) and the fields they set.
#
# An MLP preset is a name for `hidden_dims`. A CNN preset names convolutions, whose sizes are
# defined in nets/cnn.py; here it only sets `policy: cnn`.

MLP_PRESETS: dict[str, tuple[int, ...]] = {
    "mlp_tiny": (64,),
    "mlp_small": (128, 128),
    "mlp_medium": (256, 256),
    "mlp_large": (512, 512),
}
# Also accepted without "cnn_". "large" alone is ambiguous and means the CNN.
CNN_PRESETS = ("small", "nature", "impala", "large")


def _long_name(value: Any) -> Any:
    return f"cnn_{value}" if value in CNN_PRESETS else value


ModelId = Annotated[
    Literal[
        "mlp_tiny", "mlp_small", "mlp_medium", "mlp_large",
        "cnn_small", "cnn_nature", "cnn_impala", "cnn_large",
    ],
    BeforeValidator(_long_name),
]  # fmt: skip


def read_preset(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a `model_id` sets; ValueError if other fields contradict it."""
    model_id = _long_name(data.get("model_id"))
    kind = str(model_id)[:3]
    if kind not in ("mlp", "cnn"):
        return {}
    policy = str(data.get("policy") or "auto")
    if policy not in ("auto", kind, f"{kind}_actorcritic"):
        raise ValueError(f"model_id {model_id} means policy {kind}, but policy is {policy}")
    fields: dict[str, Any] = {"policy": kind}
    preset, dims = MLP_PRESETS.get(str(model_id)), data.get("hidden_dims")
    if preset is None:
        return fields
    if dims is not None and layers(dims) != preset:
        raise ValueError(
            f"model_id {model_id} means hidden_dims {list(preset)}, but hidden_dims is {dims!r}: "
            "give one of the two (null takes the other back)"
        )
    return fields | {"hidden_dims": preset}


LONGEST_RECORDED = 128  # rows of a sequence; recording longer ones takes too long

GradNorm = Annotated[float, changing(gt=0)] | None


class NormalizeFields(Fields):
    title = "normalisation"

    normalize_obs: ObsNormalization = "auto"
    """Normalise observations. rolling (or true): by running mean and standard deviation. static:
    by the bounds of the space. auto: rolling if random steps of the environment show large, small
    or uneven numbers, else false; decided at the start and recorded."""
    clip_obs: Annotated[PositiveFloat, live()] = 10.0
    """Clip normalised observations to +- this value. Raise it if rare large values matter."""
    normalize_reward: bool | Literal["auto", "size"] = "auto"
    """Divide rewards by the running standard deviation of the discounted return. Reported returns
    are never normalised. size: by the mean absolute reward, for rewards that are much the same at
    every step, whose returns hardly deviate. auto: true if random steps of the environment show
    large rewards or returns; decided at the start and recorded."""
    max_return: PositiveFloat | None = None
    """Scale normalised rewards down further, so that no discounted return so far exceeds this
    (SimbaV2, FlashSAC: 5, the range of their critics). null: by the deviation alone."""
    clip_reward: Annotated[PositiveFloat | None, live()] = 10.0
    """Clip normalised rewards to +- this value. null: no clipping."""

    @property
    def obs_normalization(self) -> Literal[False, "rolling", "static"]:
        """`normalize_obs`; off while `auto` is not decided (training/prepare.py)."""
        return False if self.normalize_obs == "auto" else self.normalize_obs

    @property
    def scales_reward(self) -> bool:
        """`normalize_reward`; off while `auto` is not decided."""
        return self.normalize_reward in (True, "size")


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
    hidden_dims: Annotated[HiddenDims, searched("[[64, 64], [128, 128], [256, 256]]")] = (64, 64)
    """Width of each hidden layer. Wider: more capacity, slower, easier to overfit."""
    cnn_channels: HiddenDims | None = None
    """Channels of each layer (cnn_small, cnn_nature) or stage (cnn_impala, cnn_large) of a CNN.
    Unset: the preset's. More: more capacity; the cost grows with the square."""
    cnn_hidden_dims: HiddenDims | None = None
    """Width of each layer between a CNN's convolutions and its outputs. Unset: the preset's: small
    128, nature 512, impala 256, large 512."""
    activation: Annotated[Activation, searched("tanh,relu")] = "tanh"
    """Activation function of the hidden layers."""
    block: Literal["mlp", "simba", "simbav2"] = "mlp"
    """What hidden layers are made of. simba: residual blocks with layer norm, all of one width,
    each with four times as many units inside (Lee et al. 2025). simbav2: such blocks with features
    and weights on a unit sphere."""
    norm: Literal["layer", "rms"] | None = None
    """Normalise the outputs of each hidden layer: layer (LayerNorm) or rms (RMSNorm). More stable,
    a little slower."""
    unit_norm: Literal["auto"] | bool = "auto"
    """Scale the weights of each unit to length 1 after every step, so that the learning rate
    decides how fast they turn. auto: with block simbav2 and flash."""
    layers: LayerList = None
    """Hidden layers one by one, in place of hidden_dims: linear, noisy, conv, pool, layer_norm,
    rms_norm, batch_norm, batch_renorm, dropout, residual, simnorm, and activations by name; or a
    graph of named nodes on the parts of an observation. gsolve net prints them."""
    init: Literal["auto", "orthogonal", "kaiming", "xavier", "uniform"] = "auto"
    """Initial weights of the hidden layers. auto: orthogonal for policy gradients, uniform in
    +-1/sqrt(inputs) for value-based methods."""
    init_gain: PositiveFloat = 1.0
    """Factor of the initial weights, if `init` is not auto."""
    zero_last: bool = False
    """Start with zeros in the output layers: values of 0 and a uniform policy."""
    embedding_dim: Literal["auto"] | Count = "auto"
    """Width of learnt embeddings of Discrete and MultiDiscrete observations, one for each
    component. auto: one-hot vectors, and an embedding of 64 for more than 1,024 values."""
    input_dims: PartDims = {}
    """Hidden layers of their own for parts of a Dict observation, before the shared ones:
    {camera: [64], goal: [32, 32]}, or a list for every part."""
    head: HeadKind = "linear"
    """Output layer of the networks: linear, or a head registered by a plugin."""

    @property
    def has_unit_norm(self) -> bool:
        auto = self.block in ("simbav2", "flash")
        return auto if self.unit_norm == "auto" else self.unit_norm

    @property
    def widest_layer(self) -> int:
        """Width of the widest hidden layer of an MLP."""
        return max(self.hidden_dims, default=0)

    @model_validator(mode="before")
    @classmethod
    def _read_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = {**data, **read_preset(data)}
        if "layer_norm" in given:  # the name in configs of version 0.1
            given["norm"] = "layer" if given.pop("layer_norm") else None
        return given


class LearningFields(Fields):
    title = "optimisation"

    policy_lr: Annotated[PositiveSchedule, searched("log:1e-5..1e-2", main=True)] = (
        Schedule.constant(3e-4)
    )
    """Learning rate. Higher: faster, until it becomes unstable."""
    optimizer: OptimizerKind = "adam"
    """Optimiser of all networks: adam, adamw, laprop (the mean is of normalised gradients), sgd,
    rmsprop, rmsprop_tf (as TensorFlow has it, with epsilon inside the root and short first steps),
    or a class of torch.optim by name: NAdam. The latter is slower for small networks."""
    optimizer_kwargs: Block = {}
    """Arguments of a class of torch.optim, such as {betas: [0.9, 0.99]}. adam_eps, adam_beta1,
    adam_beta2 and momentum do not apply to it."""
    adam_eps: Annotated[PositiveFloat, live(), searched("log:1e-8..1e-3")] = 1e-5
    """Epsilon of Adam's denominator. Higher: smaller steps where gradients are small."""
    adam_beta1: Annotated[Float, Field(ge=0, lt=1), live()] = 0.9
    """Decay of Adam's mean of the gradients. Higher: smoother, slower to turn."""
    adam_beta2: Annotated[Float, Field(ge=0, lt=1), live()] = 0.999
    """Decay of Adam's mean of the squared gradients."""
    momentum: Annotated[Float, Field(ge=0, lt=1), live()] = 0.0
    """Momentum of sgd."""
    weight_decay: Annotated[float, changing(ge=0), searched("log0:1e-6..1e-2")] = 0.0
    """Weight decay. Higher: smaller weights."""
    max_grad_value: Annotated[PositiveFloat | None, live()] = None
    """Clip every entry of the gradient to +- this value, before its norm. null: no clipping."""
    max_grad_norm: Annotated[GradNorm, searched("log:0.1..10")] = 0.5
    """Clip the gradient norm to this value. null: no clipping."""
    agc: PositiveFloat | None = None
    """Adaptive gradient clipping: the gradient of each weight matrix is at most this times as long
    as the matrix. 0.3 in DreamerV3. null: no clipping."""
    bf16: bool = False
    """Compute losses in bfloat16 where that is safe, on a GPU. Faster for large networks, less
    exact. Without effect on a CPU."""
    gamma: Annotated[
        float, changing(ge=0, le=1, auto=True), searched("logit:0.9..0.9995", main=True)
    ] = 0.99
    """Discount factor. Higher: looks further ahead, with more variance. auto: 1 - 5 / T for a time
    limit of T decisions, at least 0.95 and at most 0.995; set at the start and recorded."""

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        if self.optimizer_kwargs and self.optimizer in OPTIMIZERS:
            raise ValueError(
                f"optimizer_kwargs are for a class of torch.optim, but optimizer is "
                f"{self.optimizer}: set adam_eps, adam_beta1, adam_beta2, momentum or weight_decay"
            )
        return self


class MinibatchFields(BudgetFields):
    title = "minibatches"

    batch_size: Annotated[BatchSize, live(), searched("pow2:32..1024", main=True)] = 64
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
    """Recurrent core, which remembers what is no longer observed: after the hidden layers, in SAC,
    TD3 and DDPG before them. Learns from sequences, which is slower. null: none."""
    recurrent_dim: Annotated[Count, searched("pow2:32..256")] = 64
    """Width of the recurrent core. Wider: remembers more, slower."""
    sequence_length: Annotated[Count | None, live()] = 16
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


class SdeFields(Fields):
    title = "state-dependent exploration"

    sde: bool = False
    """Generalised state-dependent exploration (gSDE): noise that is a function of the state, the
    same for many steps. Smoother than independent noise. For real-valued actions."""
    sde_sample_freq: Annotated[Int, Field(ge=-1)] = -1
    """Steps between two draws of that function. -1: once at the start of every rollout. Fewer:
    closer to independent noise."""
    sde_log_std_init: Annotated[Float, searched("-4..0")] = -2.0
    """Initial log standard deviation of its entries. The noise on an action is as many times larger
    as the features of the last hidden layer are long. Higher: more exploration."""

    @model_validator(mode="after")
    def _check_sde(self) -> Self:
        if self.sde_sample_freq == 0:
            raise ValueError("sde_sample_freq: 0 steps; use -1 for once per rollout, or 1 and more")
        return self


CriticHeadKind = Literal["scalar", "symlog", "two_hot", "c51", "hl_gauss", "quantile"]


class ValueHeadFields(Fields):
    title = "critic head"

    critic_head: CriticHeadKind = "scalar"
    """What the outputs of a critic mean. scalar: the value. symlog: the value squashed to sign(v)
    log(1 + |v|), for returns of very different sizes. A distribution on `n_atoms` atoms
    between `v_min` and `v_max`, fitted by cross-entropy: two_hot (to the value, split between two
    atoms), hl_gauss (to a normal distribution around it), c51 (to the projected distribution of the
    next state). quantile: `n_atoms` quantiles of the return."""
    n_atoms: Annotated[Count, Field(ge=2)] = 51
    """Number of atoms or quantiles of a critic. More: finer, slower."""
    v_min: Float = -10.0
    """Lowest return of a distribution on atoms; lower ones are clipped. In the units of normalised
    rewards, if normalize_reward is on."""
    v_max: Float = 10.0
    """Highest return of a distribution on atoms; higher ones are clipped."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.resolved_head in ("two_hot", "c51", "hl_gauss") and self.v_max <= self.v_min:
            raise ValueError(f"v_max {self.v_max} must be above v_min {self.v_min}")
        return self

    @property
    def resolved_head(self) -> CriticHeadKind:
        return self.critic_head

    @property
    def head_settings(self) -> dict[str, Any]:
        """Arguments of nets/heads.py, beyond the kind."""
        return {"n_atoms": self.n_atoms, "v_min": self.v_min, "v_max": self.v_max}


class ActorCriticFields(ValueHeadFields, SdeFields, RecurrentFields):
    title = "actor and critic"

    share_trunk: Literal["auto"] | bool = "auto"
    """Share the hidden layers between policy and value function. Smaller and faster, but the two
    interfere. auto: shared in a CNN and in a recurrent network, separate in an MLP."""
    output_dims: PartDims = {}
    """Hidden layers of their own for outputs, after the shared ones, by part of the action, and
    value: {steer: [32], value: [64]}, or a list for every output."""
    heads_by: Name | None = None
    """What chooses among several output layers on the shared ones: task, in a run with tasks and
    task_one_hot, or a Discrete part of a Dict observation. null: one for all."""
    action_dist: ActionDist = "auto"
    """Distribution of actions. Real-valued (Box): gaussian (the same deviation in all states),
    gaussian_state (learnt per state), squashed (the latter through tanh into the bounds), beta (on
    the bounds), multivariate (correlated), lognormal (above the lower bound), gumbel (a longer tail
    upwards). Discrete: categorical, gumbel (relaxed one-hot), argmax (always the likeliest). auto:
    gaussian, categorical, or one per choice or bit."""
    gumbel_temperature: PositiveFloat = 1.0
    """Temperature of gumbel: lower is closer to one-hot."""
    log_std_init: Annotated[Float, searched("-3..0.5")] = 0.0
    """Initial log standard deviation of continuous actions. Higher: more exploration."""
    ent_coef: Annotated[NonNegativeSchedule, searched("log0:1e-5..0.1", main=True)] = (
        Schedule.constant(0.0)
    )
    """Weight of the entropy bonus. Higher: explores more, converges later."""
    vf_coef: Annotated[NonNegativeSchedule, searched("0.1..1.0")] = Schedule.constant(0.5)
    """Weight of the value loss, if a value is learned. Higher: the critic learns faster, in a
    shared trunk at the cost of the actor."""

    @property
    def action_settings(self) -> dict[str, Any]:
        """How actions are distributed (spaces/action_dists.py)."""
        return {
            "dist": self.action_dist,
            "log_std_init": self.log_std_init,
            "temperature": self.gumbel_temperature,
            "sde": self.sde,
        }


class CriticKeysFields(Fields):
    title = "critic"

    critic_keys: Names = []
    """Parts of a Dict observation that only the critic sees, such as the state of a simulator
    (asymmetric actor-critic). The actor never reads them, so a trained or exported policy acts
    without them."""


class CriticFields(ValueHeadFields, NetworkFields):
    """For algorithms whose critics are networks apart from the actor."""

    title = "critics"

    critic_lr: PositiveSchedule | None = None
    """Learning rate of the critics. null: same as policy_lr."""
    critic_hidden_dims: HiddenDims | None = None
    """Width of each hidden layer of the critics. null: same as hidden_dims."""
    share_encoder: bool = False
    """The actor uses the learnt encoder of the critics (convolutions, embeddings, input_dims),
    which only the critics' loss trains, as in DrQ. Faster for images."""

    @property
    def widest_layer(self) -> int:
        return max(super().widest_layer, *(self.critic_hidden_dims or (0,)))
