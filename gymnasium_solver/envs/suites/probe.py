"""Probe environments: each isolates one thing that a learner must get right, with a known answer.

All ids begin with Probe/ and end with -v0. Observations are one number unless the table names more.

ConstantReward              obs 0, reward 1, one step                    V = 1
ObsDependentReward          obs -1 or 1, reward = obs, one step          V(obs) = obs
TwoStepDiscount             obs 0 then 1, reward 0 then 1, two steps     V(1) = 1, V(0) = gamma
TruncatedReward             obs 0, reward 1, truncated every 4 steps     V = 1 / (1 - gamma)
ActionReward                obs 0, reward 1 for action 1, else -1        action 1
ObsActionReward             obs -1 or 1, reward 1 if action 1 <=> obs 1  action = obs > 0
ActionRewardContinuous      obs 0, reward -(a - 0.5)^2                   a = 0.5
ObsActionRewardContinuous   obs -1 or 1, reward -(a - obs / 2)^2         a = obs / 2
TwoStepDiscountContinuous, TruncatedRewardContinuous: as above, with actions that change nothing
Memory                      obs -1 or 1, then 0; reward at the last of   action = first obs > 0;
                            4 steps: 1 if action 1 <=> first obs 1,      return 1, without memory 0
                            else -1
Corridor                    obs from -1 to 1; actions lead left and      action 1; return 1,
                            right; reward 1 at the right end, after      0 without exploration
                            30 steps at least; 60 steps at most
MemoryParts                 the same with a Dict: cue and noise;         as Memory; return 1
                            action 2 is legal before the last step
                            only, and there the only one
DictObs                     signal -1 or 1, noise and kind at random;    action = signal > 0
                            reward 1 if action 1 <=> signal 1, else -1
MultiDiscrete               obs -1 or 1, actions [2, 3]; 1/2 for each    [1, 2] at obs 1,
                            right component                              [0, 0] at -1; return 1
MultiBinary                 obs -1 or 1, three bits; 1/3 for each right  [1, 0, 1] at obs 1,
                            bit                                          [0, 1, 1] at -1; return 1
DictAction                  obs -1 or 1, actions {go: Discrete(2), how:  go = obs > 0,
                            Box(1)}; +-1 for go, -(how - obs / 2)^2      how = obs / 2; return 1
Masked                      some actions forbidden, see the class        action 3, V = 2
BitFlip                     goal environment: an action flips a bit;     flip the bits that differ
                            -1 until the bits are the desired ones
Image                       a bright square on the left or the right     action 0 left, 1 right
Counting                    obs = (episode, step), reward 1              for tests of accounting

Episodes end by termination, except TruncatedReward's; action probes last one step, Masked one or
two.
BitFlip takes env_kwargs `bits` (8), which is also its time limit.
Counting takes env_kwargs `length` (5) and `ends` (terminated, truncated, both, alternate): env i
has episodes of length + i steps, so that the envs are out of phase; `episode` counts from 0.
"""

from typing import Any

from gymnasium_solver.envs.suites.own import refuse_unknown
from gymnasium_solver.envs.suites.probes.bit_flip import BitFlip
from gymnasium_solver.envs.suites.probes.counting import ENDS, Counting
from gymnasium_solver.envs.suites.probes.image import IMAGE_SHAPE, Image
from gymnasium_solver.envs.suites.probes.numbers import (
    ActionReward,
    ActionRewardContinuous,
    ConstantReward,
    Corridor,
    Memory,
    ObsActionReward,
    ObsActionRewardContinuous,
    ObsDependentReward,
    Probe,
    TruncatedReward,
    TruncatedRewardContinuous,
    TwoStepDiscount,
    TwoStepDiscountContinuous,
)
from gymnasium_solver.envs.suites.probes.parts import (
    DictAction,
    DictObs,
    Masked,
    MemoryParts,
    MultiBinary,
    MultiDiscrete,
)
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError

PROBES: dict[str, type[Probe]] = {
    f"Probe/{probe.__name__}-v0": probe
    for probe in (
        ConstantReward,
        ObsDependentReward,
        TwoStepDiscount,
        TruncatedReward,
        ActionReward,
        ObsActionReward,
        ActionRewardContinuous,
        ObsActionRewardContinuous,
        TwoStepDiscountContinuous,
        TruncatedRewardContinuous,
        Memory,
        Corridor,
        MemoryParts,
        DictObs,
        MultiDiscrete,
        MultiBinary,
        DictAction,
        Masked,
    )
}


def make_probe(
    env_id: str, n_envs: int, max_episode_steps: int | None, env_kwargs: dict[str, Any]
) -> VectorEnv:
    """Build a probe from its id."""
    if env_id == "Probe/Counting-v0":
        refuse_unknown(env_id, env_kwargs, ("length", "ends"))
        length, ends = env_kwargs.get("length", 5), env_kwargs.get("ends", "terminated")
        if not isinstance(length, int) or length < 1:
            raise EnvError(f"{env_id}: length must be an int >= 1, got {length!r}.")
        if ends not in ENDS:
            raise EnvError(f"{env_id}: ends must be one of {', '.join(ENDS)}, got {ends!r}.")
        return Counting(env_id, n_envs, max_episode_steps, length, ends)
    if env_id == "Probe/BitFlip-v0":
        refuse_unknown(env_id, env_kwargs, ("bits",))
        bits = env_kwargs.get("bits", 8)
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 62:
            raise EnvError(f"{env_id}: bits must be an int from 1 to 62, got {bits!r}.")
        return BitFlip(env_id, n_envs, max_episode_steps, bits)
    if env_id == "Probe/Image-v0":
        refuse_unknown(env_id, env_kwargs, ("shape",))
        shape = env_kwargs.get("shape", IMAGE_SHAPE)
        if len(shape) != 3 or not all(isinstance(n, int) and n >= 1 for n in shape):
            raise EnvError(f"{env_id}: shape must be three ints >= 1, got {shape!r}.")
        return Image(env_id, n_envs, max_episode_steps, tuple(shape))
    if env_id not in PROBES:
        known = ", ".join([*PROBES, *(f"Probe/{n}-v0" for n in ("BitFlip", "Image", "Counting"))])
        raise EnvError(f"Unknown environment {env_id!r}. Probes: {known}.")
    refuse_unknown(env_id, env_kwargs, ())
    return PROBES[env_id](env_id, n_envs, max_episode_steps)
