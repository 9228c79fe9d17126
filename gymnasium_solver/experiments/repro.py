"""Whether a run can be repeated: `gsolve repro RUN` trains its config again and compares the two.

On the same kind of machine (CPU, system, versions, code) the weights must be the same, bit for bit.
Elsewhere the score must lie where another seed could: in the prediction interval of the recorded
seeds or, with fewer than three of them, within the error of the two tests.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments.groups import differing_fields, siblings
from gymnasium_solver.experiments.pool import Task
from gymnasium_solver.experiments.statistics import student_t
from gymnasium_solver.paths import read_regular
from gymnasium_solver.runs.query import get_config, get_events, get_meta, get_run
from gymnasium_solver.runs.run import Run, is_run

FEWEST_RECORDED = 3  # seeds for a prediction interval
KIND = ("cpu", "platform")
IDENTICAL, SAME_SCORE, DIFFERENT = "identical", "same score", "different"


@dataclass(frozen=True)
class Verdict:
    """What a repetition showed."""

    verdict: str
    passed: bool
    text: str
    run: str
    repeated: str
    weights: dict[str, str | None]  # SHA-256 of the last weights: recorded and repeated
    scores: dict[str, float | None]
    interval: list[float] | None  # where the score had to lie, if the weights differ
    n_seeds: int  # recorded seeds that the interval rests on; 1: the error of the tests
    differed: dict[str, list[str]]  # facts that are not the same: [recorded, repeated]
    notes: list[str]


def check_repeatable(run: Run) -> list[str]:
    """RunError if the run cannot be repeated; otherwise what may keep it from being identical."""
    summary = get_run(run)
    if summary.status != "finished":
        raise RunError(
            f"{run.id} is {summary.status}, not finished: there is no result to repeat. "
            f"Continue it with gsolve train --resume {run.id}"
        )
    notes = []
    config = get_config(run)
    if config.get("init_from_run"):
        notes.append(f"it starts from the weights of {config['init_from_run']}")
    kinds = {event.get("kind") for event in get_events(run)}
    if kinds & {"config", "set", "edit"}:
        notes.append("its config was changed during training; the repetition has the final config")
    if summary.stop_reason not in (None, "budget", "solved", "goal_reached_eval",
                                   "goal_reached_train", "max_env_steps"):  # fmt: skip
        notes.append(f"it stopped because of: {summary.stop_reason}")
    return notes


def repetition(run: Run, root: Path) -> Task:
    """The task that trains the config of a run again, in `<root>/<id>-repro`."""
    folder = root / f"{run.id}-repro"
    number = 2
    while is_run(folder) and get_run(Run(folder)).status == "finished":
        folder, number = root / f"{run.id}-repro-{number}", number + 1
    words = [str(run.config_path), "--runs-dir", str(root)]
    seed = get_meta(run).get("seed")
    if seed is not None:
        words += ["--seed", str(seed)]
    return Task(folder, tuple(words), run.id)


def weights_hash(run: Run) -> str | None:
    """SHA-256 of the weights of the last checkpoint; None without one."""
    path = (run.checkpoints_dir / "last").resolve() / "model.safetensors"
    return hashlib.sha256(read_regular(path)).hexdigest() if path.is_file() else None


def judge(run: Run, repeated: Run, notes: list[str] | None = None) -> Verdict:
    """Compare a run with its repetition."""
    ours, theirs = weights_hash(run), weights_hash(repeated)
    old, new = get_run(run), get_run(repeated)
    if new.status != "finished" or new.test is None or old.test is None:
        raise RunError(f"{repeated.id} is {new.status}; both runs must be finished and tested")
    differed = differences(run, repeated)
    same = ours is not None and ours == theirs
    found, n_seeds = _interval(run, repeated, old.test, new.test)
    inside = found[0] <= new.test["mean"] <= found[1]
    scores = f"{new.test['mean']:.4g} against {old.test['mean']:.4g}"
    word, place = (SAME_SCORE, "within") if inside else (DIFFERENT, "outside")
    text = f"other weights; test {scores}, {place} [{found[0]:.4g}, {found[1]:.4g}]"
    if same:
        word = IDENTICAL
        text = f"identical weights after {new.env_steps:,} env steps, test {scores}"
    elif not differed and not notes:
        word, text = DIFFERENT, f"other weights on the same kind of machine, test {scores}"
    return Verdict(
        word, word != DIFFERENT, text, run.id, repeated.id, {"recorded": ours, "repeated": theirs},
        {"recorded": old.test["mean"], "repeated": new.test["mean"]},
        None if same else list(found), n_seeds, differed, notes or [],
    )  # fmt: skip


def differences(run: Run, repeated: Run) -> dict[str, list[str]]:
    """Config fields, versions, machine and code that are not the same."""
    first, second = _facts(get_meta(run)), _facts(get_meta(repeated))
    found = {
        name: [first.get(name, "-"), second.get(name, "-")]
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    }
    configs = [get_config(run), get_config(repeated)]
    for name in differing_fields(configs):
        found[name] = [str(config.get(name)) for config in configs]
    return found


def _facts(meta: Mapping[str, Any]) -> dict[str, str]:
    machine, git = meta.get("machine") or {}, meta.get("git") or {}
    facts = {name: str(machine.get(name)) for name in KIND}
    facts |= {name: str(value) for name, value in (meta.get("versions") or {}).items()}
    if git:
        facts["commit"] = str(git.get("commit"))[:12]
        if git.get("dirty"):
            facts["uncommitted changes"] = "yes"
    return facts


def _interval(
    run: Run, repeated: Run, old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[tuple[float, float], int]:
    """Where the score of a repetition must lie, and how many seeds that rests on."""
    own = get_run(run).seed
    others = [member.summary for member in siblings(run).members if member.is_tested]
    seeds = [one for one in others if one.seed not in (own, None) and one.id != repeated.id]
    scores = [float(old["mean"]), *(one.test_mean or 0.0 for one in seeds)]
    if len(scores) >= FEWEST_RECORDED:
        return prediction_interval(scores), len(scores)
    errors = [float(test.get("stderr") or 0.0) for test in (old, new)]
    width = 2.576 * math.hypot(*errors)
    return (float(old["mean"]) - width, float(old["mean"]) + width), 1


def prediction_interval(scores: list[float]) -> tuple[float, float]:
    """Where one more seed lies with 95 % probability, if scores are normal."""
    n = len(scores)
    width = student_t(n - 1) * float(np.std(scores, ddof=1)) * math.sqrt(1 + 1 / n)
    center = float(np.mean(scores))
    return center - width, center + width
