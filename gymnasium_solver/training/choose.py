"""Which presets to try, from what the probe measured: a table, no search and no names.

    choice = choose(probe, affordable={"on": 900_000, "off": 60_000})
    choice.first, choice.contrast        # Candidate: a name and the fields of its config
    choice.reasons                       # one line per decision
    chosen_for("Custom-v0", {"n_envs": 4})      # gsolve train Custom-v0: measured, without a race

`portfolio.yaml` has the presets. What is measured sets the rest: gamma from the length of an
episode, stacked observations where velocities are missing, exploration where rewards are rare.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium

from gymnasium_solver.config.load import overlay_changes
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.envs.make import FRAME_OPTIONS
from gymnasium_solver.envs.probe import (
    FEWEST_EPISODES,
    NO_LIMIT,
    ONLY_ACTIONS,
    SHARE,
    Probe,
    probe,
)
from gymnasium_solver.registry import config_class

SPARSE = 0.01  # share of steps with another reward than the usual one
MET = 0.2  # share of random episodes with such a reward, from which on it need not be searched for
HIDDEN = 0.2  # share of the next observation that only the step before tells
AMBIGUOUS = 0.05
RECALLED = 0.4  # of the variance of rewards that an earlier observation tells
ON_BOX = 100.0  # how many times more steps PPO must afford than SAC to come first
GAMMAS = 0.95, 0.995
SPARSE_GAMMA = 0.99
STACKED = 4
FAR = {"gae_lambda": 0.98}  # where a reward must reach steps long before it
LONG = 900  # steps of an episode in which it must
ADDED: dict[str, dict[str, Any]] = {
    "gru": {"recurrent": "gru", "recurrent_dim": 64},
    "stack": {"frame_stack": STACKED},
    "count": {"intrinsic": {"kind": "count", "coef": 0.3}, **FAR},
    "rnd": {"intrinsic": {"kind": "rnd", "coef": 0.1}, **FAR},
}
"""What can be added to a preset."""
LONG_SEQUENCES = {"sequence_length": 32}  # of a GRU that must remember more than a few steps
GRU_LR = 3.0  # times the learning rate of a preset: a small core learns slowly
STEADY = {"normalize_reward": "size", "intrinsic": {"kind": "count", "coef": 1.0}}
"""Of counts, where every step costs or pays the same: then a new state is worth a step at first."""
BONUS_SHARE = 0.5  # of the steps, in which a bonus falls to 0: it is not what is wanted in the end
ON_POLICY = ("ppo", "a2c", "pqn", "mbie")  # learn from each rollout as it comes
STEPS = {"on": 300_000, "off": 100_000}  # of a training whose budget is not given
BOX_STEPS, IMAGE_STEPS = 30_000, 1_000_000  # of SAC and TD3, which update at every step; of images
EVALUATIONS = 20
EPSILON_SHARES = {"dqn": 0.03, "pqn": 0.5}  # of the steps, in which epsilon falls
ROUGH_US = {
    "dqn": 2_500.0, "sac_batch_norm": 12_000.0, "sac_sphere": 14_000.0, "sac_flash": 2_000.0,
    "sac_goals": 10_000.0, "td3_goals": 10_000.0,
}  # fmt: skip
"""Microseconds of acting and updates per env step, as seen on one CPU core (sac_flash: a GPU)."""
ON_POLICY_US, IMAGE_US = 60.0, 2_000.0
PATIENCE_MINUTES = 30.0  # of updates by a replay preset, where the budget is no time
LAST_LR = 0.1  # of the learning rate of on-policy presets, at the end
FEWEST_UPDATES, FEWEST_STEPS = 32, 16  # of PPO: a short budget has short rollouts
GRADIENT_STEPS, SMALLEST_BATCH = 3_500, 64  # of PPO: and small batches, for as many gradient steps
SMALLEST_OF_SEQUENCES = 128  # of a recurrent policy: 8 sequences of 16 rows, or 4 of 32
EVAL_STEPS, EVAL_EPISODES = 10_000, 1_000  # of an evaluation where episodes are short
RANDOM_EPISODES, RANDOM_SHARE = 5, 0.1  # before an actor of SAC learns; of a run at most
LEAST_RANDOM, MOST_RANDOM = 1_000, 5_000  # of these steps
ENDS_BY_ITSELF = 0.5  # share of random episodes: then they are shorter than the time limit
BEYOND = 0.05  # of the way from random to solved, where a training stops: just at it does not hold
ENV_FIELDS = (
    "env_kwargs", "env_wrappers", "obs_keys", "max_episode_steps", "vectorization_mode",
    *FRAME_OPTIONS,
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    name: str  # of its preset, with what was added: ppo_box+gru
    fields: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    first: Candidate
    contrast: Candidate
    reasons: tuple[str, ...] = field(default=())
    """One line per decision: what was measured, what follows, what would change it."""
    n_steps: int = 0  # random steps that this rests on


def choose(
    probe: Probe, affordable: Mapping[str, float] | None = None, has_gpu: bool = False
) -> Choice:
    """`affordable`: env steps that an on-policy and an off-policy preset can make in the budget,
    with an update of the latter per step; without it both make the same."""
    reasons: list[str] = []
    first, contrast = _families(probe, affordable or {}, has_gpu, reasons)
    changes = _measured(probe, reasons)
    candidates = [candidate(parts, changes, probe) for parts in (first, contrast)]
    if (gamma := candidates[0].fields["gamma"]) < changes["gamma"]:
        reasons.append(f"{candidates[0].name}: gamma {gamma:.4g}, the most of this preset")
    return Choice(candidates[0], candidates[1], tuple(reasons))


def families(probe: Probe, has_gpu: bool = False) -> dict[str, Candidate]:
    """An on-policy and an off-policy candidate, whose costs are worth knowing."""
    names = {"on": ppo_for(probe)}
    if probe.moves != "box":
        names["off"] = "dqn"
    elif probe.is_bounded:
        names["off"] = "sac_flash" if has_gpu else "sac_batch_norm"
    return {kind: candidate((preset,), {}, probe) for kind, preset in names.items()}


# -- a training without a race --------------------------------------------------------------------


def chosen_for(env_id: str, given: Mapping[str, Any]) -> Choice:
    """The preset for a single training of an environment without a config, first of the two that
    have all the fields that are given, and else PPO. Nothing here depends on the time that anything
    takes."""
    measured = _measured_once(env_id, given)
    found = choose(measured, has_gpu=has_gpu(given))
    choices = (found.first, found.contrast, families(measured)["on"])
    first = next((c for c in choices if not _unknown(c, given)), found.first)
    fields = first.fields | {"max_env_steps": _steps(first, measured)}
    steps = int(given.get("max_env_steps") or fields["max_env_steps"])
    fields |= by_length(fields, steps) | fewer_updates(first, steps)
    reasons = list(found.reasons)
    if first is not found.first:
        names = ", ".join(_unknown(found.first, given))
        reasons.append(f"{names} given: {first.name} in place of {found.first.name}")
    return Choice(Candidate(first.name, fields), found.contrast, tuple(reasons), measured.steps)


def by_length(fields: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The fields of a preset that follow from the length of a run: exploration, the fall of the
    learning rate, rollouts, evaluations."""
    own = config_class(fields["algo_id"]).model_fields
    n_envs, n_steps = (int(fields.get(n) or own[n].default) for n in ("n_envs", "n_steps"))
    found: dict[str, Any] = {}
    if fields["algo_id"] == "ppo":
        while n_steps > FEWEST_STEPS and FEWEST_UPDATES * n_envs * n_steps > steps:
            n_steps //= 2
        most = int(fields["n_epochs"]) * steps // GRADIENT_STEPS
        batch_size = int(fields["batch_size"])
        smallest = SMALLEST_OF_SEQUENCES if fields.get("recurrent") else SMALLEST_BATCH
        while batch_size > max(smallest, most):
            batch_size //= 2
        found |= {"n_steps": n_steps, "batch_size": batch_size}
    found["eval_freq_epochs"] = max(1, steps // (EVALUATIONS * n_envs * n_steps))
    if _begins_at_random(fields):
        most = max(LEAST_RANDOM, int(RANDOM_SHARE * steps))
        found["learning_starts"] = min(int(fields["learning_starts"]), most)
    if share := EPSILON_SHARES.get(fields["algo_id"]):
        found["epsilon"] = {"start": 1.0, "end": 0.05, "to": max(2000, int(share * steps))}
    if bonus := fields.get("intrinsic"):
        to = max(1, int(BONUS_SHARE * steps))
        found["intrinsic"] = {**bonus, "coef": {"start": bonus["coef"], "end": 0.0, "to": to}}
    lr = fields.get("policy_lr")
    if kind_of(fields) == "on" and isinstance(lr, int | float):
        found["policy_lr"] = {"start": lr, "end": LAST_LR * lr, "to": steps}
    return found


def rough_us(candidate: Candidate, p: Probe) -> float:
    """Microseconds per env step of training a candidate, by what such presets take."""
    is_on = kind_of(candidate.fields) == "on"
    cost_us = ON_POLICY_US if is_on else ROUGH_US[candidate.name.split("+")[0]]
    cost_us += (p.many_step_us if is_on else p.step_us) or 0.0
    return cost_us + (IMAGE_US if p.sees == "image" else 0.0)


def fewer_updates(candidate: Candidate, steps: int) -> dict[str, Any]:
    """With a replay preset, many steps would take days: then fewer updates per step."""
    if kind_of(candidate.fields) == "on":
        return {}
    share = 60e6 * PATIENCE_MINUTES / (ROUGH_US[candidate.name.split("+")[0]] * steps)
    own = config_class(candidate.fields["algo_id"]).model_fields["updates_per_step"].default
    usual = float(candidate.fields.get("updates_per_step") or own)
    return {} if share >= 1 else {"updates_per_step": float(f"{share * usual:.2g}")}


def kind_of(fields: Mapping[str, Any]) -> str:
    return "on" if fields["algo_id"] in ON_POLICY else "off"


def has_gpu(given: Mapping[str, Any]) -> bool:
    return str(given.get("device", "")).startswith("cuda")


def _unknown(candidate: Candidate, given: Mapping[str, Any]) -> list[str]:
    """The given fields that the algorithm of a candidate has not."""
    return sorted(set(given) - set(config_class(candidate.fields["algo_id"]).model_fields))


def _steps(candidate: Candidate, p: Probe) -> int:
    kind = kind_of(candidate.fields)
    if p.sees == "image":
        return IMAGE_STEPS
    return BOX_STEPS if kind == "off" and p.moves == "box" else STEPS[kind]


_probes: dict[str, tuple[Any, Probe]] = {}


def _measured_once(env_id: str, given: Mapping[str, Any]) -> Probe:
    """The probe, once per process as long as the id means the same environment."""
    known = {name: given[name] for name in ENV_FIELDS if given.get(name) is not None}
    steps = int(given.get("max_env_steps") or min(STEPS.values()))
    key = f"{env_id} {steps} {json.dumps(known, sort_keys=True, default=str)}"
    entry = gymnasium.registry.get(env_id)
    if key not in _probes or _probes[key][0] is not entry:
        found = probe(env_id, known, most_steps=SHARE * steps, costs=False, examines=False)
        _probes[key] = gymnasium.registry.get(env_id), found
    return _probes[key][1]


# -- the table -----------------------------------------------------------------------------------

Parts = tuple[str, ...]  # a preset and names of what is added to it


def _families(
    p: Probe, affordable: Mapping[str, float], has_gpu: bool, reasons: list[str]
) -> tuple[Parts, Parts]:
    """The first choice and its contrast."""
    ratio = affordable.get("on", 1.0) / max(affordable.get("off", 1.0), 1e-9)
    say = reasons.append
    ppo = ppo_for(p)
    if p.has_goals and p.moves == "box" and p.is_bounded:
        say("observations have goals: SAC with hindsight; contrast TD3 with hindsight")
        return ("sac_goals",), ("td3_goals",)
    is_table = p.sees == p.moves == "discrete"
    if (p.has_masks and not is_table) or p.moves == "product":
        what = "some actions are illegal" if p.has_masks else f"actions are {p.acts}"
        say(f"{what}: PPO; contrast PPO with an exploration bonus")
        return (ppo,), (ppo, "count" if p.sees != "image" else "rnd")
    if p.hidden is not None and p.hidden > HIDDEN:
        say(
            f"{p.hidden:.0%} of the next observation is known only with the step before (state "
            f"hidden from {HIDDEN:.0%} on): the last {STACKED} observations stacked; contrast a GRU"
        )
        usual = _box(p, ratio, has_gpu) if p.moves == "box" else (ppo,)
        return (*usual, "stack"), (ppo, "gru")
    if p.ambiguous is not None and p.ambiguous > AMBIGUOUS:
        unclear = (
            f"equal observations and actions paid differently in {p.ambiguous:.0%} of the cases"
        )
        if p.history is not None:
            say(f"{unclear}, and {p.history} earlier steps explain it: a GRU; contrast without")
            return (ppo, "gru"), (ppo,)
        say(f"{unclear}, and earlier steps do not explain it: chance; contrast a GRU")
        first, _ = _families(replace(p, ambiguous=None), affordable, has_gpu, [])
        return first, (ppo, "gru")
    if recalls(p):
        say(
            f"earlier observations tell {p.recalled:.0%} of the variance of the rewards (memory "
            f"from {RECALLED:.0%} on): a GRU; contrast without"
        )
        return (ppo, "gru"), (ppo,)
    if p.sees == "image":
        say("images: PQN; contrast PPO" if p.moves == "discrete" else "images: PPO")
        return (("pqn_image",) if p.moves == "discrete" else (ppo,)), (ppo, "rnd")
    if p.moves == "box":
        return _box_choice(p, ratio, has_gpu, say)
    return _discrete_choice(p, say)


def recalls(p: Probe) -> bool:
    return p.recalled is not None and p.recalled > RECALLED


def ppo_for(p: Probe) -> str:
    return "ppo_image" if p.sees == "image" else "ppo_box" if p.moves == "box" else "ppo_discrete"


def _box(p: Probe, ratio: float, has_gpu: bool) -> Parts:
    if not p.is_bounded:
        return ("ppo_box", "rnd") if is_sparse(p) else ("ppo_box",)
    if is_sparse(p):
        return ("sac_sphere",)
    return ("ppo_box",) if ratio >= ON_BOX else ("sac_flash" if has_gpu else "sac_batch_norm",)


def _box_choice(p: Probe, ratio: float, has_gpu: bool, say: Any) -> tuple[Parts, Parts]:
    first = _box(p, ratio, has_gpu)
    if not p.is_bounded:
        say("actions without bounds, which SAC needs: PPO with and without an RND bonus")
        return first, ("ppo_box",) if is_sparse(p) else ("ppo_box", "rnd")
    if is_sparse(p):
        what = _rare(p)
        if pays_actions_only(p):
            what = f"the action alone explains {p.by_action:.1%} of the rewards (from "
            what += f"{ONLY_ACTIONS:.0%} on no state has paid)"
        say(f"{what}: SAC as in SimbaV2 with lasting noise; contrast PPO with an RND bonus")
        return first, ("ppo_box", "rnd")
    asked = "as many steps of SAC as of PPO"
    if ratio > 1:
        asked = f"PPO affords {ratio:.3g} times the steps of SAC"
    if first == ("ppo_box",):
        say(f"{asked} (PPO first from {ON_BOX:.0f} times on): PPO; contrast SAC")
        return first, ("sac_flash" if has_gpu else "sac_batch_norm",)
    say(f"real-valued actions, {asked} (PPO first from {ON_BOX:.0f} times on): SAC; contrast PPO")
    return first, ("ppo_box",)


def _discrete_choice(p: Probe, say: Any) -> tuple[Parts, Parts]:
    if p.sees == "discrete":
        say(f"{p.observes} and a choice of actions: counts and value iteration; contrast PPO")
        return ("mbie",), ("ppo_discrete", "count") if is_sparse(p) else ("ppo_discrete",)
    if is_sparse(p) and (p.rewarded or 0.0) >= MET:
        say(
            f"{_rare(p)}, but {p.rewarded:.0%} of the random episodes meet one (often from "
            f"{MET:.0%} on): PPO; contrast DQN"
        )
    elif is_sparse(p):
        say(f"{_rare(p)}: PPO with a count-based bonus; contrast DQN")
        return ("ppo_discrete", "count"), ("dqn",)
    else:
        say("a choice of actions: PPO; contrast DQN")
    return ("ppo_discrete",), ("dqn",)


def _rare(p: Probe) -> str:
    return f"rewards differ in {p.reward_density:.2%} of the steps (rare below {SPARSE:.0%})"


def is_sparse(p: Probe) -> bool:
    """Whether random actions hardly meet another reward than the usual one, or than the cost of an
    action. Not where each step is rewarded and episodes terminate: then their lengths differ, and
    with them the returns."""
    if p.usual_reward != 0 and (p.terminated or 0.0) > SPARSE:
        return False
    return p.reward_density < SPARSE or pays_actions_only(p)


def pays_actions_only(p: Probe) -> bool:
    """Then standing still is best among what was seen, and learnt before anything else is found."""
    return p.by_action is not None and p.by_action > ONLY_ACTIONS


# -- what is measured ----------------------------------------------------------------------------


def eval_episodes(p: Probe) -> int:
    """Of an evaluation: more where they are short."""
    return max(FEWEST_EPISODES, min(EVAL_EPISODES, EVAL_STEPS // max(p.horizon, 1)))


def _measured(p: Probe, reasons: list[str]) -> dict[str, Any]:
    """Fields that follow from measurements, whatever the preset."""
    gamma = min(max(1.0 - 5.0 / max(p.horizon, 1), GAMMAS[0]), GAMMAS[1])
    why = f"episodes of {p.horizon:,} steps"
    if is_sparse(p) and gamma < SPARSE_GAMMA:
        gamma, why = SPARSE_GAMMA, f"{why} with rare rewards"
    reasons.append(f"{why}: gamma {gamma:.4g}")
    changes: dict[str, Any] = {"gamma": gamma}
    if (episodes := eval_episodes(p)) > FEWEST_EPISODES:
        changes["eval_episodes"] = episodes
    if p.threshold is not None and p.random_mean is not None:
        beyond = BEYOND * max(0.0, p.threshold - p.random_mean)
        changes["early_stop_on_eval_threshold"] = float(f"{p.threshold + beyond:.4g}")
    if p.limit is None:
        changes["max_episode_steps"] = max(NO_LIMIT, 4 * p.horizon if p.episodes else 0)
        reasons.append(f"no time limit: episodes are cut after {changes['max_episode_steps']:,}")
    return changes


def candidate(parts: Parts, changes: Mapping[str, Any], p: Probe) -> Candidate:
    """A preset with its additions and measured fields. Its own gamma is the most it gets."""
    preset, *added = parts
    own = presets()[preset]
    fields = {**own, **changes, "gamma": min(changes.get("gamma", 1.0), own.get("gamma", 1.0))}
    if preset == "ppo_discrete" and p.horizon >= LONG:
        fields |= FAR
    for part in added:
        fields |= ADDED[part]
        if part == "gru" and p.sees != "image":
            fields["policy_lr"] *= GRU_LR
        if part == "gru" and recalls(p) and p.history is None:
            fields |= LONG_SEQUENCES
        if part == "count" and is_sparse(p) and p.usual_reward != 0:
            fields |= STEADY
    is_whole = is_sparse(p) or (p.terminated or 0.0) < ENDS_BY_ITSELF
    if _begins_at_random(fields) and is_whole:
        most = min(RANDOM_EPISODES * p.horizon, MOST_RANDOM)
        fields["learning_starts"] = max(fields["learning_starts"], most)
    if p.sees != "vector" and fields.get("normalize_obs") == "rolling":
        fields["normalize_obs"] = "auto"
    return Candidate("+".join(parts), fields)


def _begins_at_random(fields: Mapping[str, Any]) -> bool:
    """Whether some whole episodes are random: of one alone an actor learns what pays where that
    episode came to. Not where goals are replaced."""
    return fields["algo_id"] == "sac" and "her" not in fields


@cache
def presets() -> dict[str, dict[str, Any]]:
    content, _ = read_file(Path(__file__).with_name("portfolio.yaml"))
    found = {}
    for name, given in content.items():
        fields = dict(given)
        overlay = fields.pop("overlay", None)
        found[str(name)] = {**(overlay_changes([overlay], None) if overlay else {}), **fields}
    return found
