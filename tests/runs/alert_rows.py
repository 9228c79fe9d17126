"""Rows of a run that is healthy, to be made ill one metric at a time."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.alerts.judge import Judge

Row = dict[str, Any]
Change = Callable[[int, float], Row]
"""(epoch, progress) -> metrics to replace; a value of ... removes the metric."""

N_EPOCHS = 100
CONFIG = {
    "env_id": "CartPole-v1",
    "algo_id": "ppo",
    "variant": "ppo",
    "n_envs": 8,
    "n_steps": 32,
    "gamma": 0.99,
    "max_grad_norm": 0.5,
}
META = {"threshold": 475.0, "action_space": {"kind": "Discrete", "n": 2, "start": 0}}


def healthy_row(epoch: int, n_epochs: int = N_EPOCHS) -> Row:
    """A PPO run that rises from 20 to 300 and stays below the threshold."""
    share = epoch / n_epochs
    mean = 20 + 280 * share
    return {
        "env_steps": 256 * epoch, "epoch": epoch, "wall_s": 1.0 * epoch, "progress": share,
        "train/roll/ep_rew/mean": mean, "train/roll/ep_rew/best": mean if epoch > 5 else None,
        "train/roll/ep_rew/std": 10.0, "train/roll/ep_rew/min": mean - 15,
        "train/roll/ep_rew/max": mean + 15, "train/roll/ep_len/mean": mean,
        "train/roll/ep_truncated": 0.0, "train/roll/env_steps": 256, "train/plateau/env_steps": 0,
        "train/cnt/total_episodes": 30 * epoch, "train/opt/loss/total": 0.1,
        "train/opt/loss/policy": -0.01, "train/opt/policy/entropy": 0.69 - 0.3 * share,
        "train/opt/value/explained_var": -0.1 if epoch < 3 else 0.8,
        "train/opt/ppo/approx_kl": 0.01, "train/opt/ppo/kl": 0.011,
        "train/opt/ppo/clip_fraction": 0.15, "train/opt/grads/norm/all": 5.0,
        "train/hp/policy_lr": 3e-4, "train/sys/timing/fps_instant": 10_000.0,
        "train/roll/reward/mean": 1.0, "train/roll/reward/std": 0.0, "train/roll/reward/min": 1.0,
        "train/roll/reward/max": 1.0, "train/roll/obs/outside": 0.0, "train/roll/adv/std": 1.0,
        "train/roll/return/mean": 30.0, "train/roll/return/std": 5.0,
        "train/roll/actions/mean": 0.5, "train/roll/actions/std": 0.5,
        "train/roll/actions/hist/00": 0.51, "train/roll/actions/hist/01": 0.49,
        "train/opt/activations/dead": 0.02, "train/opt/activations/dead_max": 0.1,
    }  # fmt: skip


def sac_row(epoch: int) -> Row:
    """The same run, by an algorithm with Q-values, a temperature and a prioritised replay."""
    gone = [
        name for name in healthy_row(epoch) if "/ppo/" in name or name.endswith("explained_var")
    ]
    return {name: v for name, v in healthy_row(epoch).items() if name not in gone} | {
        "train/opt/q/mean": 50.0,
        "train/opt/policy/alpha": 0.05,
        "train/opt/loss/critic": 0.5,
        "train/opt/replay/priority_evenness": 0.4,
    }


def rows(change: Change | None = None, base: Callable[[int], Row] = healthy_row) -> Iterator[Row]:
    for epoch in range(1, N_EPOCHS + 1):
        row = base(epoch)
        row |= change(epoch, epoch / N_EPOCHS) if change else {}
        yield {name: value for name, value in row.items() if value is not ...}


def judged(found: Iterable[Row], config: Row | None = None, meta: Row | None = None) -> list[Alert]:
    judge = Judge({**CONFIG, **(config or {})}, {**META, **(meta or {})})
    return [alert for row in found for alert in judge.see(row)]


def raised(found: Iterable[Row], **settings: Any) -> list[str]:
    return [alert.name for alert in judged(found, **settings) if not alert.is_over]


NAN = math.nan
