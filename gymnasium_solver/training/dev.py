"""`gsolve train TARGET --dev`: does this config learn at all? A few seconds, no run folder.

A tiny training with checks: the environment steps, losses and gradients are finite, a gradient
reaches every parameter, every part of the networks changes, and every loss falls on one fixed batch
with fixed targets.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import DivergedError
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector
from gymnasium_solver.training.demo_feed import collector_for
from gymnasium_solver.training.finite import check_rollout

ROWS, REPEATS, MOST_ENVS = 64, 10, 4
DESCENTS = 50  # steps on the fixed batch


@dataclass
class Check:
    """One thing that was looked at; `problem` is None if it is as it should be."""

    what: str
    problem: str | None = None


@dataclass
class _Gradients:
    """The gradients that the optimisers were given: per parameter, the largest entry seen."""

    largest: dict[str, float] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)


def dev_config(config: Config) -> Config:
    """The config with a tiny budget; learning itself stays as it is."""
    short: dict[str, Any] = {
        "n_envs": min(config.n_envs, MOST_ENVS),
        "n_steps": min(config.n_steps, ROWS),
        "max_env_steps": 100_000,
        "max_epochs": None,
        "device": "cpu",
        "compile": False,
    }
    if hasattr(config, "learning_starts"):
        short |= {"learning_starts": 32, "buffer_size": 4096, "save_replay": False}
    if config.seed is None:
        short["seed"] = 0
    return config.replace(**short)


def dev_checks(config: Config) -> list[Check]:
    """Train a little and look at it. Errors of the config or the environment are raised."""
    config = dev_config(config)
    env = env_from_config(config, config.n_envs)
    try:
        agent: Any = build_agent(config, env.observation_space, env.action_space)
        agent.use_goals(env.goal_functions)
        agent.start_training()
        return _checks(config, agent, collector_for(config, env, agent, ROWS))
    finally:
        env.close()


def _checks(config: Config, agent: Any, collector: Collector) -> list[Check]:
    total, steps = 100_000, 0
    agent.set_clock(0, total)
    agent.before_rollout(0, total)
    rollout = collector.collect(0, None, ROWS)
    checks = [_env_check(rollout, config)]
    before = {name: own.flat.clone() for name, own in agent.optimizers.items()}
    seen = _Gradients()
    curves: dict[str, list[float]] = {}
    _watch(agent, seen)
    batches = _capture(agent)
    try:
        for _ in range(REPEATS):
            metrics = agent.update(rollout, steps, total)
            steps += rollout.env_steps
            for name, value in metrics.items():
                curves.setdefault(name, []).append(float(value))
            agent.before_rollout(steps, total)
    except RuntimeError as error:
        if "not have been used in the graph" not in str(error):
            raise
        return [*checks, Check("", "a loss does not depend on all parameters of its networks")]
    checks.append(_finite_check(curves, seen))
    checks += _gradient_checks(agent, seen)
    checks += _change_checks(agent, before)
    if not seen.not_finite:
        rate = agent.scheduled_values(0, total)["policy_lr"]
        checks += [_descent_check(agent, name, batches[name], rate) for name in batches]
    return checks


def _capture(agent: Any) -> dict[str, Any]:
    """The first batch and coefficients that every loss is computed from."""
    batches: dict[str, Any] = {}
    for name, gradient in agent.gradients.items():
        loss = gradient.loss

        def keep(batch: Any, coefficients: Any, name: str = name, loss: Any = loss) -> Any:
            batches.setdefault(name, (batch, coefficients))
            return loss(batch, coefficients)

        gradient.loss = keep
    return batches


def _descent_check(agent: Any, name: str, given: Any, rate: float) -> Check:
    """Does the loss fall along its own gradient?"""
    gradient = agent.gradients[name]
    owner = next(own for own in agent.optimizers.values() if own.params is gradient.params)
    with torch.no_grad():
        first = float(gradient.loss(*given)[0])
    for _ in range(DESCENTS):
        owner.step(gradient(*given)[0], rate)
    with torch.no_grad():
        last = float(gradient.loss(*given)[0])
    check = Check(f"the loss of {name} falls on one fixed batch: {first:.3g} to {last:.3g}")
    if not last < first:
        check.problem = (
            f"the loss of {name} does not fall on one fixed batch: {first:.3g} to {last:.3g} after "
            f"{DESCENTS} steps; try a lower policy_lr"
        )
    return check


def _env_check(rollout: Rollout, config: Config) -> Check:
    check = Check(f"the environment steps: {rollout.env_steps} env steps")
    try:
        check_rollout(rollout, config.env_id)
    except DivergedError as error:
        check.problem = str(error)
    if check.problem is None and not rollout.reward[rollout.valid].any():
        check.what += ", all rewards 0"
    return check


def _watch(agent: Any, seen: _Gradients) -> None:
    """Look at every gradient before its optimiser uses it."""
    for name, optimizer in agent.optimizers.items():
        step = optimizer.step

        def look(grad: Tensor, lr: float, name: str = name, step: Any = step) -> Tensor:
            own, start = agent.optimizers[name], 0
            for parameter_name, parameter in own.module.named_parameters():
                part = grad[start : start + parameter.numel()]
                start += parameter.numel()
                key = f"{name}.{parameter_name}"
                if not bool(torch.isfinite(part).all()):
                    seen.not_finite.add(key)
                largest = float(part.abs().max()) if part.numel() else 0.0
                seen.largest[key] = max(seen.largest.get(key, 0.0), largest)
            result: Tensor = step(grad, lr)
            return result

        optimizer.step = look


def _finite_check(curves: dict[str, list[float]], seen: _Gradients) -> Check:
    check = Check("losses and gradients are finite")
    wrong = [name for name, curve in curves.items() if not np.isfinite(curve).all()]
    wrong += sorted(seen.not_finite)
    if wrong:
        check.problem = f"not finite: {', '.join(wrong[:5])}; try a lower policy_lr"
    return check


def _gradient_checks(agent: Any, seen: _Gradients) -> list[Check]:
    names = [
        f"{name}.{parameter}"
        for name, own in agent.optimizers.items()
        for parameter, _ in own.module.named_parameters()
    ]
    check = Check(f"a gradient reaches all {len(names)} parameters")
    unreached = [name for name in names if seen.largest.get(name, 0.0) == 0.0]
    if not seen.largest:
        check.problem = "there was no gradient step: is learning_starts too high?"
    elif unreached:
        check.problem = f"no gradient reaches {', '.join(unreached[:5])}"
    return [check]


def _change_checks(agent: Any, before: dict[str, Tensor]) -> list[Check]:
    check = Check("every part of the networks changes")
    same = []
    for name, own in agent.optimizers.items():
        moved = own.part_norms(own.flat - before[name])
        same += [f"{name}.{part}" for part, norm in moved.items() if norm == 0.0]
    if same:
        check.problem = f"unchanged after {REPEATS} updates: {', '.join(same[:5])}"
    return [check]
