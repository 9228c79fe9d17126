"""Three testers of configs, from the quickest to the slowest.

    check_file(Path("configs/My.yaml")).problems     # gsolve check: everything wrong with a file
    smoke("CartPole-v1:ppo")                         # gsolve smoke: does it run? Two short epochs
    dev_checks(load_config("CartPole-v1:ppo"))       # gsolve train --dev: does it learn at all?

Checking a file imports neither torch nor an environment; the two others do, when they are called.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gymnasium_solver.config.code import accept, code_named
from gymnasium_solver.config.find import SHIPPED, read_config_file
from gymnasium_solver.config.schema import Config, LearnerConfig, canonical
from gymnasium_solver.config.yaml_file import FieldLines, FieldPath, read_text, unfilled
from gymnasium_solver.envs.make import check_env_id, env_from_config
from gymnasium_solver.envs.suites.game_options import fill_defaults
from gymnasium_solver.errors import (
    ConfigError,
    DivergedError,
    EnvError,
    GsolveError,
    MissingError,
    TrustError,
)
from gymnasium_solver.paths import temporary_folder
from gymnasium_solver.plugins import import_plugins
from gymnasium_solver.printable import printable
from gymnasium_solver.registry import config_class, observers
from gymnasium_solver.training.prepare import check_trust, given_algo_id, load_config

if TYPE_CHECKING:
    from torch import Tensor

    from gymnasium_solver.data.rollout import Rollout
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.collect import Collector

# gsolve smoke
RANDOM_STEPS = 100
N_ENVS = 2
# What makes a config short, by a field that it has.
SHORT: dict[str, dict[str, Any]] = {
    "n_envs": {
        "n_envs": N_ENVS, "n_steps": 12, "max_epochs": 2, "max_episode_steps": 10,
        "eval_freq_epochs": 2, "eval_episodes": 1, "test_episodes": 1, "seed": 1,
    },
    # The first update must be reached, and there is no space for a million images.
    "learning_starts": {
        "learning_starts": 8, "train_freq": 8, "updates_per_step": 0.1, "buffer_size": 1000,
    },
    # Plans with the model of a GPU take seconds on a CPU.
    "plan_iterations": {
        "n_samples": 16, "n_policy_samples": 2, "n_elites": 4, "plan_iterations": 2,
        "batch_size": 16, "pretrain_updates": 1, "compile": False,
    },
    "imagination_steps": {"batch_size": 2, "sequence_length": 4, "imagination_steps": 2},
}  # fmt: skip
# gsolve train --dev
DEV: dict[str, dict[str, Any]] = {
    "n_envs": {"max_env_steps": 100_000, "max_epochs": None, "device": "cpu", "compile": False},
    "learning_starts": {"learning_starts": 32, "buffer_size": 4096, "save_replay": False},
    "pretrain_updates": {"pretrain_updates": 0, "updates_per_step": 0.1, "learning_starts": 64},
    "imagination_steps": {"batch_size": 4, "sequence_length": 8, "updates_per_step": 0.1},
}
ROWS, REPEATS, MOST_ENVS = 64, 10, 4
DESCENTS = 50  # steps on the fixed batch

Found = tuple[FieldPath, str]  # a place in a config, and what is wrong there


# -- gsolve check: files ----------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    path: str
    line: int | None
    variants: tuple[str, ...]  # the configs of the file that have it; empty: the file itself
    text: str

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        who = f"{', '.join(self.variants)}: " if self.variants else ""
        return f"{self.path}{line}: {who}{self.text}"


@dataclass
class FileReport:
    path: Path
    configs: int = 0
    problems: list[Problem] = field(default_factory=list)


def check_file(path: Path, trust: bool = False) -> FileReport:
    """Check all configs of a file. `trust`: import the code that they name; otherwise a file that
    names code is not checked, since this is what one does with a file that one has not read.

    Loading a config stops at the first kind of problem; here all of them are collected, for every
    variant. A problem in lines that several variants share is named once."""
    report = FileReport(path)
    try:
        file = read_config_file(path)
        lines = FieldLines(read_text(path)[0])
        _check_code(path, [file.base, *file.variants.values()], trust)
    except (ConfigError, TrustError) as error:
        report.problems.append(_file_problem(path, str(error)))
        return report
    if not file.variants and not file.base:
        report.problems.append(Problem(str(path), None, (), "the file is empty"))
        return report
    names: list[str | None] = list(file.variants) or [None]
    report.configs = len(names)
    grouped: dict[tuple[int | None, str], list[str]] = {}
    for name in names:
        for place, text in section_problems(file.section(name)):
            line = lines.find(name, place)
            if line is None and name is not None:
                line = lines.variant(name)
            grouped.setdefault((line, text), []).extend([name] if name else [])
    report.problems = [
        Problem(str(path), line, () if len(who) == len(names) > 1 else tuple(who), text)
        for (line, text), who in sorted(grouped.items(), key=lambda item: item[0][0] or 0)
    ]
    return report


def _check_code(path: Path, lines: list[dict[str, Any]], trust: bool) -> None:
    """TrustError if a file that is not shipped names code to import, other than Gymnasium's, and is
    not trusted."""
    if trust or path.is_relative_to(SHIPPED):
        accept(lines)
        return
    check_trust(path, lines)
    names = {name for fields in lines for name in code_named(fields)}
    if code := sorted(name for name in names if name.partition(".")[0] != "gymnasium"):
        raise TrustError(
            f"it names code, {printable(', '.join(code))}, which is not imported: the file is not "
            "checked. With --trust it is."
        )


def _file_problem(path: Path, text: str) -> Problem:
    """A problem of the file itself; the YAML reader puts the line into its message."""
    match = re.match(rf"{re.escape(str(path))}(?::(\d+))?: (.*)", text, re.DOTALL)
    line, text = (match[1], match[2]) if match else (None, text)
    return Problem(str(path), int(line) if line else None, (), text)


def section_problems(section: Mapping[str, Any]) -> Iterator[Found]:
    """What is wrong with the lines of one config. Fields with unfilled placeholders are left
    out."""
    try:
        data = canonical(section)
    except ConfigError as error:
        yield (), str(error)
        return
    open_fields = {key for key, value in data.items() if any(unfilled(value))}
    yield from _name_problems("plugins", data, lambda name: import_plugins([name]))
    if "algo_id" not in open_fields:
        try:
            model: type[Config] = config_class(given_algo_id(data))
        except ConfigError as error:
            yield ("algo_id",), str(error)
        else:
            found = _field_problems(model, data)
            yield from (item for item in found if not {*item[0][:1]} & open_fields)
    if "env_wrappers" not in open_fields:
        yield from _wrapper_problems(data.get("env_wrappers"))
    yield from _name_problems("observers", data, observers.get)
    if "env_id" not in open_fields and isinstance(data.get("env_id"), str):
        try:
            check_env_id(data["env_id"])
        except MissingError:
            pass  # of this machine, not of the file
        except EnvError as error:
            yield ("env_id",), f"env_id: {error}"


def _name_problems(
    field: str, data: Mapping[str, Any], check: Callable[[str], object]
) -> Iterator[Found]:
    """Problems of a list of names, or of a single one."""
    given = data.get(field)
    items = [given] if isinstance(given, str) else given
    names = [n for n in items if isinstance(n, str)] if isinstance(items, list) else []
    for i, name in enumerate(names):
        try:
            check(name)
        except ConfigError as error:
            yield (field, i), str(error)


def _field_problems(model: type[Config], data: dict[str, Any]) -> Iterator[Found]:
    """Problems of the fields. Those of single fields hide the ones between fields, so the checks
    are repeated without the fields that are wrong by themselves."""
    seen: set[str] = set()
    while True:
        try:
            model(**fill_defaults(data))
            return
        except GsolveError as error:
            text = str(error)
        new = [line for line in text.splitlines() if line not in seen]
        wrong = set()
        for line in new:
            seen.add(line)
            name = re.split(r"[:. ]", line, maxsplit=1)[0]
            wrong |= {name} & data.keys()
            yield _place(line), line
        if not wrong:
            return
        data = {key: value for key, value in data.items() if key not in wrong}


def _place(line: str) -> FieldPath:
    """The place that a message begins with: `spec.action_space.labels: ...`."""
    match = re.match(r"[\w.]+(?=:| )", line)
    return tuple(match[0].split(".")) if match else ()


def _wrapper_problems(specs: Any) -> Iterator[Found]:
    given = specs if isinstance(specs, list) else []
    if not given:
        return
    from gymnasium_solver.envs.wrappers.wrapping import lower, wrapper_problems

    problems = 0
    for i, spec in enumerate(given):
        if isinstance(spec, Mapping):
            for option, text in wrapper_problems(spec):
                problems += 1
                yield ("env_wrappers", i, option), f"env_wrappers: {text}"
    if not problems and all(isinstance(spec, Mapping) for spec in given):
        try:
            lower(given)  # their order
        except EnvError as error:
            yield ("env_wrappers",), f"env_wrappers: {error}"


# -- gsolve smoke: short trainings ------------------------------------------------------------


def smoke(job: str | dict[str, Any]) -> dict[str, Any]:
    """Test one config, given by name or as {name, steps}: status pass, fail or skip, and the
    reason. Random actions in its environment, then two short epochs of training: that covers the
    engine, wrappers, normalisation, network and schedules."""
    settings = {"name": job} if isinstance(job, str) else job
    name, n_steps = settings["name"], int(settings.get("steps", RANDOM_STEPS))
    begun_s, stage = time.perf_counter(), "load"
    result: dict[str, Any] = {"name": name, "status": "pass", "reason": ""}
    try:
        config = load_config(name)
        stage = "random"
        result |= random_steps(config, n_steps)
        stage = "train"
        with temporary_folder("smoke") as folder:
            meta = short_training(name, Path(folder)).meta()
        if meta["status"] != "finished":
            raise GsolveError(f"the run is {meta['status']}, not finished")
    except Exception as error:  # also a bug here or in the environment, reported in the table
        text, is_known = " ".join(str(error).split()), isinstance(error, GsolveError)
        # A missing package is not a failure of the config; the error says how to install it.
        is_absent = isinstance(error, MissingError) or (is_known and "pip install" in text)
        kind = "" if is_known else f"{type(error).__name__}: "
        result |= {"status": "skip" if is_absent else "fail", "reason": f"{stage}: {kind}{text}"}
    return result | {"wall_s": time.perf_counter() - begun_s}


def short_config(name: str, **overrides: Any) -> Config:
    """The config with a budget of two short epochs."""
    config = load_config(name)
    short = _by_field(SHORT, config)
    if getattr(config, "same_start_envs", 1) > 1:
        short["group_size"] = N_ENVS
    return load_config(name, overrides=short | overrides)


def _by_field(table: Mapping[str, dict[str, Any]], config: Config) -> dict[str, Any]:
    """The lines of the table that are for this config; a later one counts."""
    found: dict[str, Any] = {}
    for name, fields in table.items():
        found |= fields if hasattr(config, name) else {}
    return found


def short_training(name: str, runs_root: Path) -> "Run":
    """Train for two epochs, with an evaluation and a test."""
    from gymnasium_solver.training.loop import train

    return train(short_config(name), runs_root=runs_root)


def random_steps(config: Config, n_steps: int) -> dict[str, Any]:
    """Step a config's environments with random actions. Observations and rewards must be finite,
    and observations must have the shape of the space."""
    from gymnasium_solver.envs.random_steps import RandomPolicy
    from gymnasium_solver.spaces.observations import obs_arrays, part_spaces

    with closing(env_from_config(config, N_ENVS)) as env:
        policy = RandomPolicy(env.action_space, N_ENVS, seed=1)
        spaces, obs = part_spaces(env.observation_space), env.reset(1)
        begun_s = time.perf_counter()
        for _ in range(n_steps):
            for name, part in obs_arrays(obs):
                space = spaces[name]
                is_like = part.shape == (N_ENVS, *(space.shape or ()))
                if not is_like or not np.isfinite(part).all():
                    what = f"observation part {name!r}" if name else "observations"
                    raise GsolveError(f"{what} of shape {part.shape} do not match {space}")
            step = env.step(policy.act(env.action_mask))
            if not np.isfinite(step.reward).all():
                raise GsolveError(f"a reward is not finite: {step.reward.tolist()}")
            obs = step.obs
        speed = n_steps * N_ENVS / max(time.perf_counter() - begun_s, 1e-9)
        return {"engine": env.spec.engine, "env_steps_per_s": speed}


# -- gsolve train --dev: does it learn? -------------------------------------------------------


@dataclass
class Check:
    """One thing that was looked at; `problem` is None if it is as it should be."""

    what: str
    problem: str | None = None


def dev_config(config: Config) -> Config:
    """The config with a tiny budget; learning itself stays as it is."""
    size = {"n_envs": min(config.n_envs, MOST_ENVS), "n_steps": min(config.n_steps, ROWS)}
    seed = 0 if config.seed is None else config.seed
    return config.replace(**_by_field(DEV, config), **size, seed=seed)


def dev_checks(config: Config) -> list[Check]:
    """Train a little and look at it: the environment steps, losses and gradients are finite, a
    gradient reaches every parameter, every part of the networks changes, and every loss falls on
    one fixed batch with fixed targets. Without gradients only what is left of these. Errors of the
    config or the environment are raised."""
    from gymnasium_solver.training.agents import build_agent
    from gymnasium_solver.training.collect import host_collector

    config = dev_config(config)
    with closing(env_from_config(config, config.n_envs)) as env:
        agent: Any = build_agent(config, env.observation_space, env.action_space)
        agent.use_goals(env.goal_functions)
        agent.start_training()
        return _checks(config, agent, host_collector(config, env, agent, ROWS))


def _checks(config: Config, agent: Any, collector: "Collector") -> list[Check]:
    total, steps = 100_000, 0
    agent.set_clock(0, total)
    agent.before_rollout(0, total)
    rollout = collector.collect(0, None, ROWS)
    checks = [_env_check(rollout, config)]
    if not isinstance(config, LearnerConfig):
        metrics = agent.update(rollout, steps, total)
        wrong = [name for name, value in metrics.items() if not math.isfinite(value)]
        checks.append(_check("metrics are finite; there are no gradients", wrong, "not finite: {}"))
        return checks
    before = {name: own.flat.clone() for name, own in agent.optimizers.items()}
    curves: dict[str, list[float]] = {}
    largest, batches = _watched_gradients(agent), _first_batches(agent)
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
    exploded = sorted(name for name, size in largest.items() if not math.isfinite(size))
    wrong = [name for name, curve in curves.items() if not np.isfinite(curve).all()] + exploded
    optimizers = agent.optimizers.items()
    names = [f"{name}.{key}" for name, own in optimizers for key, _ in own.named_parameters()]
    unreached = [name for name in names if not largest.get(name)]
    same = [
        f"{name}.{part}"
        for name, own in optimizers
        for part, norm in own.part_norms(own.flat - before[name]).items()
        if norm == 0.0
    ]
    checks += [
        _check("losses and gradients are finite", wrong, "not finite: {}; try a lower policy_lr"),
        _check(
            f"a gradient reaches all {len(names)} parameters", unreached, "no gradient reaches {}"
        ),
        _check(
            "every part of the networks changes", same, f"unchanged after {REPEATS} updates: {{}}"
        ),
    ]
    if not largest:
        checks[-2].problem = "there was no gradient step: is learning_starts too high?"
    if not exploded:
        rate = agent.scheduled_values(0, total)["policy_lr"]
        checks += [_descent_check(agent, name, batches[name], rate) for name in batches]
    return checks


def _check(what: str, wrong: list[str], problem: str) -> Check:
    return Check(what, problem.format(", ".join(wrong[:5])) if wrong else None)


def _env_check(rollout: "Rollout", config: Config) -> Check:
    from gymnasium_solver.training.finite import check_rollout

    check = Check(f"the environment steps: {rollout.env_steps} env steps")
    try:
        check_rollout(rollout, config.env_id)
    except DivergedError as error:
        check.problem = str(error)
    if check.problem is None and not rollout.reward[rollout.valid].any():
        check.what += ", all rewards 0"
    return check


def _watched_gradients(agent: Any) -> dict[str, float]:
    """By parameter, the largest entry of the gradients that its optimiser is given from now on;
    infinite if one is not finite."""
    largest: dict[str, float] = {}
    for name, optimizer in agent.optimizers.items():
        step = optimizer.step
        sizes = {f"{name}.{key}": p.numel() for key, p in optimizer.named_parameters()}

        def look(grad: "Tensor", lr: float, sizes: Any = sizes, step: Any = step) -> "Tensor":
            for key, part in zip(sizes, grad.split(list(sizes.values())), strict=True):
                size = float(part.abs().max()) if part.numel() else 0.0
                size = size if math.isfinite(size) else math.inf
                largest[key] = max(largest.get(key, 0.0), size)
            return step(grad, lr)

        optimizer.step = look
    return largest


def _first_batches(agent: Any) -> dict[str, Any]:
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
    import torch

    gradient = agent.gradients[name]
    owner = next(own for own in agent.optimizers.values() if own.params is gradient.params)
    with torch.no_grad():
        first = float(gradient.loss(*given)[0])
    for _ in range(DESCENTS):
        owner.step(gradient(*given)[0], rate)
    with torch.no_grad():
        last = float(gradient.loss(*given)[0])
    text = f"on one fixed batch: {first:.3g} to {last:.3g}"
    check = Check(f"the loss of {name} falls {text}")
    if not last < first:
        check.problem = (
            f"the loss of {name} does not fall {text} after {DESCENTS} steps; try a lower policy_lr"
        )
    return check
