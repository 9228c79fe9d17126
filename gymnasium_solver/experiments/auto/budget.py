"""What the runs of `gsolve solve` may use: the budget and its shares, and what it affords."""

import math
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.backends import local
from gymnasium_solver.config.load import dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.probe import Probe
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.experiment import slug
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.training import choose
from gymnasium_solver.training.choose import Candidate
from gymnasium_solver.training.prepare import build_config

RACE = 0.09  # of the budget, for each preset
SEEDS = 2
FEWEST_RACE_STEPS, FEWEST_RACE_EPISODES = 3_000, 5  # of a run of the race
RACE_EPISODES = 10  # of the test by which runs of the race are compared
TEST = 0.05  # of a budget in minutes, for the test at the end
FEWEST_RACE_S = 20.0  # of a preset's share of a race: processes take seconds to start
PACED_MINUTES = 5.0  # from here on the pace of replay presets is measured; starting takes long
PACE_S = 4.0  # of training such a preset, to know what it can afford


@dataclass(frozen=True)
class Budget:
    """Env steps or minutes, for everything together."""

    env_steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if (self.env_steps is None) == (self.minutes is None):
            raise ConfigError("solve needs one budget: env steps or minutes")

    def __str__(self) -> str:
        if self.minutes is not None:
            return "1 minute" if self.minutes == 1 else f"{self.minutes:g} minutes"
        return f"{self.env_steps:,} env steps"


def run_config(
    candidate: Candidate, given: Mapping[str, Any], budget: Budget, share: float, steps: int
) -> Config:
    """The config of a run that may use this share of the budget; `steps`: of all of it."""
    fields = {**candidate.fields, **given}
    fields["variant"], fields["project_id"] = candidate.name, slug(str(given["env_id"]))
    fields["max_env_steps"] = max(1, int(share * steps))
    if budget.minutes is not None:
        fields["max_env_steps"] *= 2
        fields["max_minutes"] = round(share * SEEDS * budget.minutes, 3) if share < 1 else (
            round((1.0 - TEST) * budget.minutes, 3)
        )  # fmt: skip
    else:
        fields |= choose.fewer_updates(candidate, steps)
    at_length = choose.by_length(fields, steps) | stop_fields(candidate, budget)
    if share == 1:
        return build_config({**fields, **at_length, **given})
    at_length.pop("policy_lr", None)  # constant: a race does not know for how long it goes on
    without = {
        "eval_freq_epochs": None, "test_episodes": RACE_EPISODES,
        "early_stop_on_eval_threshold": False,
    }  # fmt: skip
    return build_config({**fields, **at_length, **given, **without})


def stop_fields(candidate: Candidate, budget: Budget) -> dict[str, Any]:
    """When a training may end early: minutes are a limit, env steps are used. The first good
    evaluation is often a lucky one, and the policy still improves."""
    name = "early_stop_on_eval_threshold"
    is_limit = budget.minutes is not None
    return {name: candidate.fields.get(name, True) if is_limit else False}


def affordable_steps(measured: Probe, given: Mapping[str, Any], budget: Budget) -> dict[str, float]:
    """Env steps that an on-policy and an off-policy preset make in the budget, with an update of
    the latter per step."""
    minutes = budget.minutes or choose.PATIENCE_MINUTES
    most = math.inf if budget.env_steps is None else float(budget.env_steps)
    found: dict[str, float] = {}
    for kind, candidate in choose.families(measured, choose.has_gpu(given)).items():
        if kind == "on" or (budget.minutes or 0.0) < PACED_MINUTES:  # an update of PPO costs little
            found[kind] = min(most, 60e6 * minutes / choose.rough_us(candidate, measured))
            continue
        # Short epochs: time is looked at after each, and an update may take a second.
        fields = {**candidate.fields, **given, "n_steps": 8, "max_env_steps": 10**9}
        seconds = min(PACE_S, 0.01 * 60.0 * minutes)
        fields |= {"max_minutes": seconds / 60.0, "eval_freq_epochs": None, "test_episodes": 1}
        fields["learning_starts"] = fields["batch_size"]
        pace = _pace(build_config(fields))
        found[kind] = 60.0 * minutes * (pace or 1e6 / (measured.step_us or 1e3))
    return found


def _pace(config: Config) -> float | None:
    """Env steps per second of training a config, in the second half of a short run in a process of
    its own; None if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path, run = Path(folder) / "config.yaml", Path(folder) / "run"
        path.write_text(dump_config(config))
        place = ("--run-dir", str(run), "--runs-dir", folder, "--quiet", "--no-keys")
        done = subprocess.run(
            local.gsolve("train", str(path), "--seed", "1", *place),
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            return None
        points = [(row["wall_s"], row["env_steps"]) for row in read_jsonl(run / "metrics.jsonl")]
        late = points[len(points) // 2 :] if len(points) > 1 else [(0.0, 0), *points]
        (wall, steps), (wall_end, steps_end) = late[0], late[-1]
        return (steps_end - steps) / max(wall_end - wall, 1e-9) if len(late) > 1 else None


def affords(candidate: Candidate, affordable: Mapping[str, float]) -> int:
    return int(affordable[choose.kind_of(candidate.fields)])


def time_text(first: Candidate, p: Probe, budget: Budget, steps: int) -> str:
    """How long the first preset takes, or how far it comes."""
    if budget.minutes is not None:
        return f"about {round_number(steps)} env steps of {first.name} within {budget} here"
    fewer = choose.fewer_updates(first, steps)
    minutes = choose.PATIENCE_MINUTES if fewer else steps * choose.rough_us(first, p) / 60e6
    length = f"about {round(minutes)} min" if minutes >= 1 else "less than a minute"
    text = f"{length} of training by {first.name} on a free CPU core"
    if not fewer:
        return text
    return f"{text}, with {fewer['updates_per_step']:g} updates per step (--budget 2h for more)"


def round_number(steps: float) -> str:
    return f"{int(float(f'{steps:.2g}')):,}"


def why_no_race(measured: Probe, steps: int, budget: Budget) -> str | None:
    """Why a race would tell nothing; None if it is worth it."""
    if measured.random_sd == 0.0:
        return "all random returns are equal, so that a short race would tell nothing"
    own, is_short = steps * RACE / SEEDS, False
    if budget.minutes is not None:
        is_short = 60.0 * RACE * budget.minutes < FEWEST_RACE_S
    is_short |= own < max(FEWEST_RACE_STEPS, FEWEST_RACE_EPISODES * measured.horizon)
    return f"too little for a race: {budget}" if is_short else None
