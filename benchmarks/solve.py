"""Wall time from the shell to solved, each library with its own best published config.

    gsolve bench --only solve

Ours is `gsolve train ENV:fast`; SB3 and sbx run rl-baselines3-zoo's configs, rejax and CleanRL
their own. One rule for all: solved is a mean of at least the threshold over 100 greedy episodes
that had no part in choosing the policy, and the training stops there. Ours validates as often as
its config says and is judged by its held-out test; its time includes that test and the run folder.
A peer plays 10 episodes about as often, and the 100 that decide when these reach the threshold. A
peer that has not solved it after a multiple of our time (`patience`) is stopped, and its time is
reported as a lower bound.
"""

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.libraries import (
    CLEANRL,
    OURS,
    REJAX,
    SB3,
    SBX,
    How,
    bars,
    find,
    run_ours,
    run_peer,
    take_turns,
)
from gymnasium_solver.bench.harness import GSOLVE, Options, say, spread, table, timed
from gymnasium_solver.chart_style import saved_figure
from gymnasium_solver.config.find import find_configs
from gymnasium_solver.errors import GsolveError

EPISODES = 100
FEWEST_EVAL_STEPS = 2_500  # between two evaluations of a peer: each costs it about a second
SHORTEST_LIMIT_S = 15.0  # a peer may take to start, and JAX to compile


class Case(NamedTuple):
    variants: tuple[str, ...]  # of our config, the first there is
    threshold: float
    patience: float  # times our own time
    tasks: dict[str, str]
    again: bool = False  # also run a peer that was stopped in an earlier repeat
    often: int = 1  # runs for each repeat asked for


ZOO = "CartPole-v1:ppo"
CASES = {
    # A run takes seconds, and a peer takes between 5 and 16 of them depending on the seed.
    "CartPole-v1": Case(
        ("fast", "ppo"),
        475.0,
        8.0,
        {SB3: ZOO, SBX: ZOO, REJAX: "CartPole-v1", CLEANRL: "CartPole-v1"},
        again=True,
        often=3,
    ),
    "LunarLander-v3": Case(("fast", "ppo"), 200.0, 4.2, {SB3: "LunarLander-v3:ppo"}, again=True),
    "Acrobot-v1": Case(("fast", "ppo"), -100.0, 3.0, {SB3: "Acrobot-v1:ppo", REJAX: "Acrobot-v1"}),
    "MountainCar-v0": Case(("fast", "ppo"), -110.0, 3.0, {SB3: "MountainCar-v0:dqn"}),
    "MountainCarContinuous-v0": Case(
        ("fast", "ppo"),
        90.0,
        3.0,
        {SB3: "MountainCarContinuous-v0:sac", REJAX: "MountainCarContinuous-v0"},
    ),
    # No threshold is registered; at -200 the pendulum is swung up and held from every start.
    "Pendulum-v1": Case(
        ("fast", "ppo"), -200.0, 3.0, {SB3: "Pendulum-v1:ppo", REJAX: "Pendulum-v1"}
    ),
    # No peer publishes a config for these. The best policy for Taxi has 7.93 on average.
    "FrozenLake-v1": Case(("fast", "ppo"), 0.70, 3.0, {}),
    "Taxi-v3": Case(("fast", "ppo"), 7.5, 3.0, {}),
}
TASKS, QUICK = tuple(CASES), ("CartPole-v1",)


def measure(options: Options) -> list[dict[str, Any]]:
    """One row per run; in each repeat ours first, because its time limits the peers'."""
    rows: list[dict[str, Any]] = []
    n_runs = {
        env_id: options.repeats * (1 if options.quick else CASES[env_id].often)
        for env_id in options.chosen(QUICK if options.quick and not options.tasks else CASES)
    }
    for repeat in range(max(n_runs.values())):
        for env_id in (env_id for env_id, n in n_runs.items() if repeat < n):
            say(f"solve: repeat {repeat + 1} of {n_runs[env_id]}, {env_id}")
            gave_up = {row["who"] for row in rows if row["env_id"] == env_id and row.get("late")}
            names = [n for n in CASES[env_id].tasks if CASES[env_id].again or n not in gave_up]
            for row in _turn(env_id, names, repeat, options):
                rows.append({"env_id": env_id, "repeat": repeat} | row)
    return rows


@cache
def our_config(env_id: str) -> str:
    """The quickest of our configs that exists."""
    known = {entry.name for entry in find_configs()}
    names = [f"{env_id}:{variant}" for variant in CASES[env_id].variants]
    for name in names:
        if name in known:
            return name
    raise GsolveError(f"none of these configs exists: {', '.join(names)}")


def _turn(env_id: str, peers: Sequence[str], repeat: int, options: Options) -> list[dict[str, Any]]:
    case, how = CASES[env_id], How(seed=repeat + 1)
    config = our_config(env_id)
    shown = json.loads(timed([GSOLVE, "show", config, "--json"]).stdout)
    flags = (
        "--eval-deterministic=true",
        f"--eval-episodes={EPISODES}",
        f"--early-stop-on-eval-threshold={case.threshold}",
    )
    [ours] = take_turns({OURS: partial(run_ours, config, how, *flags)})
    ours |= {"config": config, "late": False}
    limit_s = max(SHORTEST_LIMIT_S, case.patience * ours["wall_s"])
    rule = (
        f"--eval-every={eval_every(shown)}",
        f"--eval-episodes={EPISODES}",
        f"--threshold={case.threshold}",
        f"--limit-s={limit_s:.0f}",
    )
    sides = {
        name: partial(run_peer, find(name, options), case.tasks[name], how, *rule) for name in peers
    }
    return [ours, *take_turns(sides, flip=repeat % 2 == 1)]


def eval_every(shown: dict[str, Any]) -> int:
    """Env steps between our evaluations, or more where that is too often for a peer."""
    per_epoch = shown["n_envs"] * shown["n_steps"]
    own = shown.get("eval_freq_steps") or (shown["eval_freq_epochs"] or 1) * per_epoch
    return max(FEWEST_EVAL_STEPS, own)


def sections(rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = []
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        group = [row for row in rows if row["env_id"] == env_id and "error" not in row]
        for who in (OURS, *CASES[env_id].tasks):
            if runs := [row for row in group if row["who"] == who]:
                cells.append(_cells(group, runs))
    failed = {f"- {r['who']}, {r['env_id']}: {r['error']}" for r in rows if "error" in r}
    head = ("env", "library", "config", "solved at", "solved", "env steps to solved")
    return [
        "## From the shell to solved",
        "Each library with its own best published config: ours `ENV:fast` (or the one named), SB3 "
        "and sbx rl-baselines3-zoo's, rejax and CleanRL their own. Solved: a mean of at least the "
        f"threshold over {EPISODES} greedy episodes that had no part in choosing the policy: for "
        "ours the held-out test at the end, for a peer the episodes it plays once 10 others have "
        "reached the threshold. Default threads, compilation included. Ours includes saving and "
        "the test. A peer is stopped after a multiple of our time, which is then a lower bound "
        "(“>”); except on CartPole and LunarLander it is not run again. CartPole has three times "
        "as many runs as the others. No peer publishes a config for FrozenLake and Taxi.",
        table((*head, "shell to exit, s", "of it evaluations", "compiling", "× our time"), cells),
        *(["Missing:\n\n" + "\n".join(sorted(failed))] if failed else []),
    ]


def _cells(group: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    env_id, who = runs[0]["env_id"], runs[0]["who"]
    done = [run for run in runs if is_solved(run)]
    compiling = [run["compile_s"] for run in runs if run.get("compile_s")]
    return (
        env_id,
        who,
        f"`{runs[0].get('config') or CASES[env_id].tasks[who]}`",
        f"{CASES[env_id].threshold:g}",
        f"{len(done)} of {len(runs)}",
        spread([run["env_steps"] for run in done]) if done else "–",
        more_than(runs) + spread([run["wall_s"] for run in runs], 1),
        spread([run["eval_s"] for run in runs], 1),
        spread(compiling, 1) if compiling else "–",
        times_ours(group, runs),
    )


def is_solved(run: dict[str, Any]) -> bool:
    """Ours: by the held-out test. A peer: by the 100 episodes that follow a promising ten."""
    if run["who"] != OURS:
        return bool(run["solved"])
    return run["test"] is not None and run["test"] >= CASES[run["env_id"]].threshold


def more_than(runs: Sequence[dict[str, Any]]) -> str:
    """The mark of a lower bound: half of the runs or more were cut short."""
    cut = sum(not is_solved(run) for run in runs)
    return "> " if 2 * cut >= len(runs) and runs[0]["who"] != OURS else ""


def times_ours(group: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> str:
    """The library's time over ours, pair by pair."""
    if runs[0]["who"] == OURS:
        return "1"
    ours = {row["repeat"]: row["wall_s"] for row in group if row["who"] == OURS}
    ratios = [run["wall_s"] / ours[run["repeat"]] for run in runs if run["repeat"] in ours]
    return more_than(runs) + spread(ratios, 1) if ratios else "–"


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    done = [row for row in rows if "error" not in row]
    peers = {row["env_id"] for row in done if row["who"] != OURS}
    envs = [env_id for env_id in CASES if env_id in peers]
    if not envs:
        return
    n_columns = min(len(envs), 2)
    n_bars = [len({row["who"] for row in done if row["env_id"] == env_id}) for env_id in envs]
    slots = [max(n_bars[i : i + n_columns]) for i in range(0, len(envs), n_columns)]
    size = 10, 0.4 + 0.45 * len(slots) + 0.3 * sum(slots)
    title, heights = (
        "From the shell to solved, seconds (shorter is better)",
        {"height_ratios": slots},
    )
    with saved_figure(path, len(envs), n_columns, size, title, gridspec_kw=heights) as axes:
        for i, (ax, env_id) in enumerate(zip(axes, envs, strict=True)):
            runs: dict[str, list[dict[str, Any]]] = {}
            for row in done:
                if row["env_id"] == env_id:
                    runs.setdefault(row["who"], []).append(row)
            medians = {
                who: float(np.median([r["wall_s"] for r in found])) for who, found in runs.items()
            }
            order = sorted(medians, key=lambda who: medians[who])
            texts = [f"{more_than(runs[who])}{medians[who]:.1f} s" for who in order]
            values = [medians[who] for who in order]
            bars(ax, order, values, texts, ours=OURS, title=env_id, n_slots=slots[i // n_columns])
