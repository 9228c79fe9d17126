"""The field `intrinsic`: a reward for what is new, added to the environment's.

intrinsic: rnd
intrinsic: {kind: count, coef: {start: 0.1, end: 0}, by: bins, n_bins: 20}
intrinsic: {kind: episodic, coef: 0.02}
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from gymnasium_solver.config.blocks import Fields
from gymnasium_solver.config.marks import live
from gymnasium_solver.config.nested import dump_block, read_block
from gymnasium_solver.config.schedule import NonNegativeSchedule, Schedule
from gymnasium_solver.config.types import Count, Float, HiddenDims


class Intrinsic(Fields):
    kind: Literal["rnd", "count", "episodic", "episodic_count"]
    """rnd: error of predicting a random network's output (Burda et al. 2018), new over the whole
    run. count: 1 / sqrt(visits) of a state, counted over the whole run. episodic: new within the
    episode, by the nearest states seen in it (as in NGU). episodic_count: 1 / sqrt(visits) of a
    state, counted within the episode."""
    coef: NonNegativeSchedule = Schedule.constant(0.1)
    """Weight of the intrinsic reward. Higher: explores more, follows the task less."""
    normalize: bool | Literal["auto"] = "auto"
    """Divide by the running standard deviation of the intrinsic return. auto: for rnd only; the
    others are within [0, 1] and fade by themselves."""
    clip: Annotated[Float, Field(gt=0)] | None = 5.0
    """Clip the intrinsic reward to this value, before `coef`. null: no clipping."""
    gamma: Annotated[Float, Field(ge=0, le=1)] = 0.99
    """Discount of the intrinsic return, for `normalize`."""
    first_visit: bool = False
    """Reward only the first visit of a state in an episode, so that going back and forth earns
    nothing."""
    difference: Annotated[Float, Field(ge=0, le=1)] | None = None
    """rnd, count: reward the rise of novelty, max(novelty after the step - difference x novelty
    before it, 0), so that only the way into the unknown pays (NovelD: 0.5, with first_visit). null:
    the novelty itself."""
    # --- rnd
    lr: Annotated[Float, Field(gt=0)] = 1e-4
    """rnd: learning rate of the predictor. Higher: novelty fades faster."""
    hidden_dims: HiddenDims = (128, 128)
    """rnd: hidden layers of both networks, after the convolutions of an image."""
    embed_dim: Count = 64
    """rnd, episodic: width of a state's embedding."""
    batch_size: Count = 256
    """rnd: samples per gradient step; one pass over each rollout."""
    # --- states that are counted
    by: Literal["auto", "exact", "bins", "simhash"] = "auto"
    """What counts as one state. exact: equal observations. bins: each number in `n_bins` bins.
    simhash: signs of `n_signs` random projections. auto: exact for whole numbers, bins for up to 8
    numbers, else simhash."""
    n_bins: Count = 16
    """bins: bins per number, over its bounds. More: finer states."""
    n_signs: Annotated[Count, Field(le=62)] = 24
    """simhash: projections. More: finer states."""
    table_bits: Annotated[Count, Field(ge=8, le=24)] = 16
    """Size of the table of counts: 2^bits entries. States may share an entry."""
    # --- episodic
    neighbors: Count = 10
    """episodic: nearest states compared with."""
    capacity: Count = 512
    """episodic: states remembered per environment; older ones of a longer episode are replaced."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.difference is not None and self.kind not in ("rnd", "count"):
            raise ValueError(
                f"difference: {self.kind} has no novelty over the whole run; use rnd or count"
            )
        return self


def _parse(value: Any) -> Intrinsic | None:
    if value is None or value is False:
        return None
    return read_block(Intrinsic, value, shorthand="kind")


IntrinsicField = Annotated[
    InstanceOf[Intrinsic] | None,
    BeforeValidator(_parse),
    PlainSerializer(dump_block),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["rnd", "count", "episodic", "episodic_count"]},
                {"type": "object"},
                {"type": "null"},
            ],
            "x-expected": "rnd, count, episodic, episodic_count, or a block {kind: rnd, ...}",
        }
    ),
]


class IntrinsicFields(Fields):
    """For algorithms that can add an intrinsic reward."""

    title = "intrinsic reward"

    intrinsic: Annotated[IntrinsicField, live()] = None
    """Reward for what is new, added to the environment's reward for learning; scores stay those of
    the environment. rnd, count, episodic, episodic_count, or a block with more settings. null:
    none."""
