"""Runs made ill on purpose: each must raise its alert.

    .venv/bin/python -m benchmarks.alerts_ill
    .venv/bin/python -m benchmarks.alerts_ill --only reward_scale gamma_0

Small budgets, one process, about two minutes. Raw figures go to results/alerts_ill.json, the table
to results/alerts_ill.md and docs/alerts.md.
"""

import argparse
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.errors import DivergedError
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config

NAME = "alerts_ill"
HERE = "benchmarks.alert_envs"
PPO: dict[str, Any] = {"algo_id": "ppo", "n_envs": 8, "n_steps": 32, "batch_size": 64}
DQN: dict[str, Any] = {"train_freq": 16, "updates_per_step": 1.0, "hidden_dims": [64, 64]}


class Illness(NamedTuple):
    what: str
    config: str
    settings: dict[str, Any]
    alerts: tuple[str, ...]
    """All of them must be raised; others may be."""


ILLNESSES = {
    "lr_high": Illness(
        "learning rate x 100",
        "CartPole-v1:ppo",
        {"policy_lr": 0.3, "max_env_steps": 12_000},
        ("kl_high", "entropy_collapse"),
    ),
    "lr_low": Illness(
        "learning rate / 10,000",
        "CartPole-v1:ppo",
        {"policy_lr": 3e-7, "max_env_steps": 10_000},
        ("kl_low", "clip_fraction_low"),
    ),
    "clip": Illness(
        "a clip range of 0.02",
        "CartPole-v1:ppo",
        {"clip_range": 0.02, "policy_lr": 0.003, "n_epochs": 20, "max_env_steps": 8_000},
        ("clip_fraction_high",),
    ),
    "gamma_0": Illness(
        "gamma 0",
        "CartPole-v1:ppo",
        {"gamma": 0.0, "max_env_steps": 10_000},
        ("no_signal", "short_horizon"),
    ),
    "reward_scale": Illness(
        "rewards x 1,000,000",
        "CartPole-v1:ppo",
        {"env_wrappers": [{"id": "RewardScale", "scale": 1e6}], "max_env_steps": 6_000},
        ("gradients_huge",),
    ),
    "value_clip": Illness(
        "clip_range_vf far too small",
        "CartPole-v1:ppo",
        {"clip_range_vf": 1e-3, "max_env_steps": 5_000},
        ("value_clip_high",),
    ),
    "no_critic": Illness(
        "a critic that is not trained, on a shared trunk",
        "CartPole-v1:ppo",
        {"vf_coef": 0.0, "share_trunk": True, "policy_lr": 0.01, "max_env_steps": 15_000},
        ("explained_variance_negative",),
    ),
    "relu": Illness(
        "ReLU with a learning rate x 100",
        "CartPole-v1:ppo",
        {"policy_lr": 0.3, "activation": "relu", "max_env_steps": 12_000},
        ("dead_units",),
    ),
    "narrow": Illness(
        "hardly any exploration in a Box",
        "Pendulum-v1:ppo",
        {"log_std_init": -5.0, "max_env_steps": 3_000},
        ("initial_actions",),
    ),
    "constant": Illness(
        "a dead environment: constant reward",
        f"{HERE}:Constant-v0",
        {**PPO, "max_env_steps": 6_000},
        ("constant_return", "all_truncated"),
    ),
    "truncated": Illness(
        "a time limit of 5 steps",
        "CartPole-v1:ppo",
        {"max_episode_steps": 5, "max_env_steps": 6_000},
        ("all_truncated", "constant_return"),
    ),
    "outside": Illness(
        "observations outside their space",
        f"{HERE}:Outside-v0",
        {**PPO, "max_env_steps": 10_000},
        ("observations_outside",),
    ),
    "nan": Illness(
        "an environment that returns NaN",
        f"{HERE}:Nan-v0",
        {**PPO, "max_env_steps": 6_000},
        ("not_finite",),
    ),
    "mixed": Illness(
        "a task that the most likely action cannot do",
        f"{HERE}:Mixed-v0",
        {**PPO, "eval_freq_epochs": 5, "max_env_steps": 10_000, "ent_coef": 0.1},
        ("eval_below_train",),
    ),
    "alpha": Illness(
        "SAC with alpha fixed at 1,000",
        "Pendulum-v1:sac",
        {"ent_coef": 1000.0, "n_steps": 100, "hidden_dims": [32, 32], "max_env_steps": 2_500},
        ("alpha_high",),
    ),
    "q": Illness(
        "DQN with a learning rate x 20 and targets copied at every step",
        "CartPole-v1:dqn",
        {
            **DQN,
            "policy_lr": 0.05,
            "target_update_freq": 1,
            "max_grad_norm": None,
            "loss": "mse",
            "n_steps": 500,
            "max_env_steps": 6_000,
        },
        ("q_diverging",),
    ),
}


class Ear(Observer):
    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    def on_alert(self, alert: Alert) -> None:
        if not alert.is_over:
            self.alerts.append(alert)


def try_one(illness: Illness) -> list[dict[str, Any]]:
    """The alerts that one ill run raised."""
    settings = {"eval_freq_epochs": None, "test_episodes": 2, **illness.settings}
    name, _, last = illness.config.rpartition(":")
    target = illness.config if name == HERE else f"{name}:{last}"
    config = load_config(target, overrides={"seed": 1, "n_threads": 1, **settings})
    ear = Ear()
    with tempfile.TemporaryDirectory() as folder, suppress(DivergedError):  # it has its alert
        train(config, runs_root=Path(folder), observers=[ear])
    return [alert.to_dict() for alert in ear.alerts]


def ill_table(result: dict[str, Any]) -> str:
    rows = []
    for entry in result["ill_runs"]:
        seen = {alert["name"]: alert for alert in reversed(entry["alerts"])}
        missing = [name for name in entry["expected"] if name not in seen]
        expected = [f"`{n}`" + " **missing**" * (n in missing) for n in entry["expected"]]
        others = sorted(f"`{name}`" for name in seen if name not in entry["expected"])
        first = seen.get(entry["expected"][0])
        text = f"{_short(first['text'])}, at {first['env_steps']:,}" if first else "-"
        rows.append([entry["what"], ", ".join(expected), text, ", ".join(others)])
    return table(["made ill by", "raises", "what was seen, at env steps", "also raised"], rows)


def _short(text: str) -> str:
    """The first sentence, without the name of the environment before it."""
    return text.partition(". ")[0].partition("; the first")[0].rpartition("-v0: ")[2]


def markdown(result: dict[str, Any]) -> str:
    return "\n\n".join(["# Runs made ill on purpose", describe(result), ill_table(result)])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="alerts_ill.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=ILLNESSES, metavar="NAME")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    result: dict[str, Any] = header("python -m benchmarks.alerts_ill") | {"ill_runs": []}
    for name in args.only or ILLNESSES:
        illness = ILLNESSES[name]
        alerts = try_one(illness)
        raised = {alert["name"] for alert in alerts}
        missing = sorted(set(illness.alerts) - raised)
        say(f"{name}: {', '.join(sorted(raised)) or 'silent'}; missing: {missing or 'none'}")
        entry = {"name": name, "what": illness.what, "config": illness.config}
        entry |= {"settings": illness.settings, "expected": list(illness.alerts), "alerts": alerts}
        result["ill_runs"].append(entry)
    if args.only:
        print(json.dumps(result["ill_runs"], indent=2))
        return
    write(args.out, NAME, result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
