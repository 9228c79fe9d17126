"""The switches of a config, and sets of configs in which every pair of them occurs.

A case is an algorithm, a place (its environment) and some switches, at most one of each slot.
`covering_cases` combines them until every pair that is not REFUSED is in some case; which pairs
meet depends on the seed.
"""

import random
from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import Any

from gymnasium_solver.registry import ALGOS, config_class

MOST_NAMES = 9  # in a case
SHORT = {"max_episode_steps": 12}
RAMP = {"start": 0.5, "end": 0.1}
CNN = {"cnn_channels": [4, 4, 4], "cnn_hidden_dims": [8]}
EVERY_EPOCH = {"eval_freq_epochs": 1, "eval_episodes": 2}

# Slot -> name -> fields. An algorithm can have a switch if its config has all of the fields.
PLACES: dict[str, dict[str, Any]] = {
    "cartpole": {"env_id": "CartPole-v1", **SHORT},
    "pendulum": {"env_id": "Pendulum-v1", **SHORT},
    "frozen lake": {"env_id": "FrozenLake-v1", **SHORT},
    "one number": {"env_id": "Probe/ObsActionReward-v0"},
    "real actions": {"env_id": "Probe/ObsActionRewardContinuous-v0"},
    "memory": {"env_id": "Probe/Memory-v0"},
    "dict observations": {"env_id": "Probe/DictObs-v0"},
    "masks": {"env_id": "Probe/Masked-v0"},
    "dict and masks": {"env_id": "Probe/MemoryParts-v0"},
    "goals": {"env_id": "Probe/BitFlip-v0", "env_kwargs": {"bits": 4}},
    "image": {
        "env_id": "Probe/Image-v0",
        "env_kwargs": {"shape": [2, 12, 12]},
        "n_threads": 1,
        **CNN,
    },
    "choices": {"env_id": "Probe/MultiDiscrete-v0"},
    "bits": {"env_id": "Probe/MultiBinary-v0"},
    "dict actions": {"env_id": "Probe/DictAction-v0"},
}
STALLS = {"metric": "train/roll/ep_rew/mean", "patience": 1, "min_delta": 1e9}
SWITCHES: dict[str, dict[str, dict[str, Any]]] = {
    "engine": {
        name: {"vectorization_mode": name} for name in ("sync", "async", "envpool", "vector")
    },
    "wrapper": {
        "frame stack": {"frame_stack": 2},
        "frame skip": {"env_wrappers": [{"id": "FrameSkipWrapper", "skip": [1, 3]}]},
    },
    "course": {
        "curriculum": {
            "curriculum": {"stages": [{"max_episode_steps": 3, "max_env_steps": 20}]},
        },
        "tasks": {
            "tasks": [{"name": "short", "max_episode_steps": 3}, {"name": "long"}],
        },
        "task names": {
            "tasks": [{"name": "short", "max_episode_steps": 3}, {"name": "long"}],
            "task_one_hot": True,
        },
    },
    "core": {
        name: {"recurrent": name, "recurrent_dim": 6, "sequence_length": 4}
        for name in ("gru", "lstm", "rnn")
    },
    "intrinsic": {
        "rnd": {"intrinsic": {"kind": "rnd", "hidden_dims": [6], "embed_dim": 4}},
        "count": {"intrinsic": {"kind": "count", "coef": RAMP, "difference": 0.5}},
        "episodic": {"intrinsic": {"kind": "episodic", "embed_dim": 4, "first_visit": True}},
        "episodic count": {"intrinsic": {"kind": "episodic_count", "normalize": True}},
    },
    "extension": {
        "sil": {"sil": True, "sil_updates": 2, "sil_batch_size": 8, "sil_buffer_size": 40},
        "her": {"her": {"strategy": "future", "k": 2}},
    },
    "monitor": {
        "monitor": {"monitor": ["weights", "updates", "rank"], "log_details_freq_epochs": 1}
    },
    "replay": {
        "prioritized": {"prioritized": True},
        "combined": {"combined_replay": True},
    },
    "resets": {
        "resets": {"reset_every": 5},
        "shrink and perturb": {"reset_every": 4, "shrink_perturb": 0.8},
    },
    "returns": {
        "n-step": {"n_step": 3},
        "td lambda": {"td_lambda": 0.5},
        "percentile": {"normalize_advantages": "percentile"},
        "rloo": {"baseline": "rloo", "group_size": 2},
        "value baseline": {"baseline": "value"},
    },
    "head": {
        name: {"critic_head": name, "n_atoms": 5, "v_min": -3.0, "v_max": 3.0}
        for name in ("symlog", "two_hot", "hl_gauss", "c51", "quantile")
    },
    "trunk": {
        "shared": {"share_trunk": True},
        "dueling": {"dueling": True},
        "spectral": {"spectral_norm": True},
        "shared encoder": {"share_encoder": True, "input_dims": [6]},
    },
    "critic keys": {"critic keys": {"critic_keys": ["noise"]}},
    "layers": {
        "layer list": {"layers": [{"linear": 8}, "layer_norm", "silu", {"dropout": 0.1}]},
        "stateful layers": {"layers": [{"noisy": 8}, {"batch_renorm": 4}, "relu"]},
        "simba": {"block": "simba", "hidden_dims": [8]},
        "sphere": {"block": "simbav2", "hidden_dims": [8]},
        "flash": {"block": "flash", "hidden_dims": [8]},
        "rms norm": {"norm": "rms"},
        "batch norm": {"norm": "batch", "unit_norm": True},
        "own input layers": {"input_dims": [6]},
    },
    "exploration": {
        "noisy": {"noisy": True},
        "boltzmann": {"exploration": "boltzmann"},
        "sde": {"sde": True, "sde_sample_freq": 3},
        "lasting noise": {"noise_correlation": 0.5},
        "repeated noise": {"noise_repeat": 4, "log_std_bound": "tanh", "target_std": 0.2},
        "ou noise": {"exploration_noise_type": "ou"},
        "squashed": {"action_dist": "squashed"},
        "lognormal": {"action_dist": "lognormal"},
        "argmax": {"action_dist": "argmax"},
    },
    "rate schedule": {
        "lr schedule": {"policy_lr": "lin_0.01"},
        "lr by kl": {"adaptive_kl": 0.01},
        "lr of torch": {
            "policy_lr": {"schedule": "StepLR", "start": 0.01, "options": {"step_size": 300}}
        },
    },
    "gamma schedule": {
        "gamma schedule": {"gamma": {"start": 0.8, "end": 0.99}},
        "gamma by the limit": {"gamma": "auto"},
    },
    "entropy schedule": {"entropy schedule": {"ent_coef": RAMP}},
    "clip schedule": {"clip schedule": {"clip_range": RAMP}},
    "obs scale": {
        "rolling obs": {"normalize_obs": "rolling"},
        "static obs": {"normalize_obs": "static"},
    },
    "reward scale": {
        "scaled reward": {"normalize_reward": True},
        "bounded return": {"normalize_reward": True, "max_return": 5.0},
    },
    "value scale": {"popart": {"normalize_values": True}, "rescaled": {"value_rescaling": True}},
    "optimizer": {
        "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
        "laprop": {"optimizer": "laprop"},
        "rmsprop": {"optimizer": "rmsprop"},
        "sgd": {"optimizer": "sgd", "momentum": 0.5},
        "nadam": {"optimizer": "NAdam"},
    },
    "clipping": {"agc": {"agc": 0.3}, "clipped entries": {"max_grad_value": 0.1}},
    "compile": {
        "torch": {"compile": False},
        "numpy": {"compile": "numpy"},
        "native": {"compile": "native"},
    },
    "rules": {
        "intervention": {"interventions": [{**STALLS, "change": {"policy_lr": {"multiply": 0.5}}}]},
    },
    "evaluation": {"evaluated": EVERY_EPOCH},
    "stacking": {"stacked": {}},
}
# Slots in which a case has exactly one name, then those in which it has at most one.
SLOTS: dict[str, dict[str, dict[str, Any]]] = {
    "algorithm": {algo_id: {"algo_id": algo_id} for algo_id in ALGOS},
    "place": PLACES,
    **SWITCHES,
}
FIELDS = {name: fields for slot in SLOTS.values() for name, fields in slot.items()}
SLOT_OF = {name: slot for slot, names in SLOTS.items() for name in names}

DISCRETE_ONLY = ("dqn", "pqn", "sarsa", "mbie")
REAL_ONLY = ("td3", "ddpg")
REPLAYED = ("dqn", "sac", "td3", "ddpg")
"""Algorithms that learn from sequences of a replay, if they have a core."""
REAL_PLACES = ("pendulum", "real actions")
PROBES = tuple(place for place in PLACES if PLACES[place]["env_id"].startswith("Probe/"))
MIXED_PLACES = ("choices", "bits", "dict actions")
DISCRETE_PLACES = tuple(place for place in PLACES if place not in (*REAL_PLACES, *MIXED_PLACES))
CORES, HEADS = tuple(SWITCHES["core"]), tuple(SWITCHES["head"])
REFUSED: list[tuple[tuple[str, ...], ...]] = [
    (DISCRETE_ONLY, (*REAL_PLACES, *MIXED_PLACES)),
    (("sac", "crossq"), MIXED_PLACES),
    (("bc",), ("cartpole", "pendulum", "frozen lake", "dict and masks", "goals", "image")),
    (("bc",), ("curriculum", "frame stack", "task names", *SWITCHES["intrinsic"])),
    (("sync", "async", "envpool", "frame skip"), PROBES),
    (("vector",), ("pendulum", "frozen lake", "frame skip")),
    (("sde",), (*DISCRETE_PLACES, *MIXED_PLACES)),
    (("squashed", "lognormal"), (*DISCRETE_PLACES, "choices", "bits")),
    (("argmax",), (*REAL_PLACES, "choices", "bits")),
    (("ppo", "a2c"), ("c51",)),
    (("reinforce",), ("value baseline",), ("c51",)),
    (("popart",), (*HEADS, "sphere")),
    (("random", "mbie"), ("intervention",)),
    (("mbie",), tuple(place for place in PLACES if place != "frozen lake")),
    (("mbie",), ("frame stack", "task names", *SWITCHES["gamma schedule"])),
    (("her",), ("frame stack",)),
    (("a2c",), ("percentile",)),
    (("sil",), CORES),
    (("dqn",), CORES, HEADS),
    (REPLAYED, CORES, ("her", "combined")),
    (("sac", *REAL_ONLY), CORES, ("batch norm", "flash")),
    (("sac",), CORES, ("sde",)),
    (("her",), (*SWITCHES["intrinsic"], *(place for place in PLACES if place != "goals"))),
    (("simba", "sphere", "flash"), ("image",)),
    (("rms norm", "batch norm", "sphere", "flash"), ("spectral",)),
    (("crossq",), ("rms norm", "simba", "sphere")),
    (("tdmpc2",), ("rms norm", "simba", "sphere", "prioritized", "combined", "n-step", "her")),
    (("tdmpc2",), (*DISCRETE_PLACES, *MIXED_PLACES)),
    (("dreamerv3",), ("rms norm", "simba", "sphere", "layer list", "stateful layers")),
    (("dreamerv3",), ("own input layers", "prioritized", "combined", "n-step", "her")),
    (("dreamerv3",), ("image", *MIXED_PLACES)),
    (("flash", "batch norm"), tuple(a for a in ALGOS if a not in ("sac", *REAL_ONLY))),
    (("repeated noise",), (*DISCRETE_PLACES, *MIXED_PLACES)),
    (REAL_ONLY, (*DISCRETE_PLACES, *MIXED_PLACES)),
    (("gamma by the limit",), tuple(place for place in PROBES if place != "goals")),
    (
        ("critic keys",),
        tuple(p for p in PLACES if p not in ("dict observations", "dict and masks")),
    ),
    (("critic keys",), ("shared encoder", "shared")),
    (("ppo", "a2c"), ("critic keys",), CORES),
]
"""Groups of names: one of each cannot be together in a config."""
NOT_TOGETHER = {frozenset(names) for groups in REFUSED for names in product(*groups)}


def has_fields(algo_id: str, name: str) -> bool:
    """Whether the config of the algorithm has the fields that a switch sets."""
    return config_class(algo_id).model_fields.keys() >= FIELDS[name].keys()


ABSENT = {
    frozenset((algo_id, name))
    for algo_id in ALGOS
    for slot in SWITCHES.values()
    for name in slot
    if not has_fields(algo_id, name)
}
"""Algorithms and switches that they do not have."""

Case = tuple[str, ...]
"""An algorithm, a place and switches, by name."""
FITTING = {
    name: {
        other
        for other in FIELDS
        if SLOT_OF[name] != SLOT_OF[other]
        and frozenset((name, other)) not in NOT_TOGETHER
        and frozenset((name, other)) not in ABSENT
    }
    for name in FIELDS
}
"""The names that each name can be with."""


OTHERS = {
    name: [names - {name} for names in NOT_TOGETHER if len(names) > 2 and name in names]
    for name in FIELDS
}
"""Of the groups of three that cannot be together, the other two of each name."""


def fits(name: str, names: Iterable[str]) -> bool:
    """Whether a config can have this name with the others."""
    if not FITTING[name].issuperset(names):
        return False
    return not any(others.issubset(names) for others in OTHERS[name])


def completed(names: Case) -> Iterator[Case]:
    """The names with each algorithm and place that all of them can be with."""
    for slot in ("algorithm", "place"):
        if not any(name in SLOTS[slot] for name in names):
            for name in SLOTS[slot]:
                if fits(name, names):
                    yield from completed((*names, name))
            return
    yield names


def covering_cases(seed: str) -> list[Case]:
    """Cases in which all pairs occur that are not refused and that an algorithm can have."""
    rng = random.Random(seed)
    missing: dict[str, set[str]] = {name: set() for name in FIELDS}
    for name, other in combinations(FIELDS, 2):
        if other in FITTING[name] and next(completed((name, other)), None):
            missing[name].add(other)
            missing[other].add(name)
    cases = []
    while left := [name for name in FIELDS if missing[name]]:
        name = rng.choice(left)
        starts = list(completed((name, rng.choice(sorted(missing[name])))))
        names = set(max(starts, key=lambda case: sum(len(missing[n] & {*case}) for n in case)))
        while len(names) < MOST_NAMES:
            fitting = [name for name in FIELDS if fits(name, names)]
            rng.shuffle(fitting)
            best = max(fitting, key=lambda name: len(missing[name] & names), default=None)
            if best is None or not missing[best] & names:
                break
            names.add(best)
        for name in names:
            missing[name] -= names
        cases.append(tuple(name for name in FIELDS if name in names))
    rng.shuffle(cases)
    return cases


def fields_of(names: Case) -> dict[str, Any]:
    """The settings of a case, beyond those that all tiny trainings have."""
    has = config_class(names[0]).model_fields
    settings = [item for name in names[1:] for item in FIELDS[name].items()]
    found = {field: value for field, value in settings if field in has or field not in CNN}
    if names[0] in REPLAYED and "recurrent" in found:
        found |= {"burn_in": 2, "learning_starts": 48}  # until there are sequences to sample
    return {"n_envs": 4, "n_steps": 8, **found}
