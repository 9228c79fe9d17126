"""Our side and the peers', as processes started from the shell: one record per run.

sb3 = find(SB3, options)
run_peer(sb3, "CartPole-v1:ppo", How(seed=1), "--steps=50000")
run_ours("CartPole-v1:ppo", How(seed=1), "--max-env-steps=50000")
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.bench.harness import (
    GSOLVE,
    FailedProcess,
    Options,
    say,
    spread,
    timed,
)
from gymnasium_solver.chart_style import COLOURS, GREY
from gymnasium_solver.config.schema import Config
from gymnasium_solver.runs.query import get_metrics
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.threads import pick_compiled_threads, pick_threads

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, SB3, SBX, REJAX, CLEANRL = "gymnasium-solver", "SB3", "sbx", "rejax", "CleanRL"
# The module that runs a peer, and its first arguments; rejax has its own Python environment.
SCRIPTS: dict[str, tuple[str, ...]] = {
    SB3: ("benchmarks.peers.sb3", "sb3"),
    SBX: ("benchmarks.peers.sb3", "sbx"),
    REJAX: ("benchmarks.peers.rejax_ppo",),
    CLEANRL: ("benchmarks.peers.cleanrl_ppo",),
}
ANY_TASK = {SB3: "CartPole-v1:ppo", SBX: "CartPole-v1:ppo", REJAX: "zoo", CLEANRL: "zoo"}


@dataclass(frozen=True)
class Peer:
    """A library to compare with: its interpreter, or why it is missing."""

    name: str
    python: str | None
    versions: dict[str, str]
    missing: str | None = None

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "versions": self.versions, "missing": self.missing}


@dataclass(frozen=True)
class How:
    """The conditions of one run; None leaves the choice to the library."""

    seed: int
    n_threads: int | None = None
    core: int | None = None


def find(name: str, options: Options) -> Peer:
    """The peer, if its Python environment exists and can import it."""
    python = options.peers_jax_python if name == REJAX else options.peers_python
    return _find(name, python)


@cache
def _find(name: str, python: Path) -> Peer:
    if not python.exists():
        return Peer(name, None, {}, "its environment is not installed (make peers)")
    module, *first = SCRIPTS[name]
    try:
        said = timed([str(python), "-m", module, *first, ANY_TASK[name], "--versions"]).stdout
    except FailedProcess as error:
        return Peer(name, None, {}, str(error))
    return Peer(name, str(python), _last_line(said)["versions"])


def take_turns(
    sides: Mapping[str, Callable[[], dict[str, Any]]], flip: bool = False
) -> Iterator[dict[str, Any]]:
    """Run each side once; a missing or failing peer is reported in its row, ours must work."""
    for who in reversed(list(sides)) if flip else sides:
        try:
            yield {"who": who} | sides[who]()
        except FailedProcess as error:
            if who == OURS:
                raise
            say(f"bench: {who} is missing: {error}")
            yield {"who": who, "error": str(error)}


def run_peer(peer: Peer, task: str, how: How, *flags: str) -> dict[str, Any]:
    if peer.python is None:
        raise FailedProcess(peer.missing)
    module, *first = SCRIPTS[peer.name]
    command = [peer.python, "-m", module, *first, task, f"--seed={how.seed}", *flags]
    if how.n_threads:
        command.append(f"--threads={how.n_threads}")
    done = timed(command, core=how.core, n_threads=how.n_threads)
    run = _last_line(done.stdout)
    run.pop("versions")
    return {"wall_s": done.wall_s, "others_cores": done.others_cores} | run


def run_ours(config: str, how: How, *flags: str, warm_steps: int = 0) -> dict[str, Any]:
    command = [GSOLVE, "train", config, f"--seed={how.seed}", "-q", *flags]
    if how.n_threads:
        command.append(f"--n-threads={how.n_threads}")
    with tempfile.TemporaryDirectory() as runs_dir:
        where = {"GSOLVE_RUNS": runs_dir}
        done = timed(command, core=how.core, n_threads=how.n_threads, environment=where)
        run = json.loads(timed([GSOLVE, "run", "@last", "--json"], environment=where).stdout)
        curves = get_metrics("@last", ["wall_s", "train/sys/timing/*_share"], Path(runs_dir))
    evals = [event for event in run["evals"] if event["stage"] == "val"]
    shares = curves.get("train/sys/timing/eval_share", [])
    return {
        "wall_s": done.wall_s,
        "others_cores": done.others_cores,
        "threads": how.n_threads or most_threads(load_config(config)),
        "env_steps": run["env_steps"],
        "steps_per_s": rate(curves["wall_s"], warm_steps),
        "evals": [{"env_steps": event["env_steps"], "mean": event["mean"]} for event in evals],
        "eval_s": (shares[-1][1] or 0.0) * (curves["wall_s"][-1][1] or 0.0) if shares else 0.0,
        "test": run["test"]["mean"] if run["test"] else None,
    }


def most_threads(config: Config) -> int:
    """Threads that our side takes by itself: torch's, or those of compiled programs."""
    n = pick_threads(config)
    return pick_compiled_threads(config, n)


def _last_line(said: str) -> dict[str, Any]:
    """The record that a peer's script prints last: libraries may print before it."""
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def rate(times: Sequence[tuple[int, float | None]], warm_steps: int) -> float | None:
    """Env steps per second from the first row at or after `warm_steps`; None without two rows."""
    warm = [(steps, s) for steps, s in times if s is not None and steps >= warm_steps]
    if len(warm) < 2 or warm[-1][1] <= warm[0][1]:
        return None
    return (warm[-1][0] - warm[0][0]) / (warm[-1][1] - warm[0][1])


def ratio(
    group: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], peer: str, digits: int = 2
) -> str:
    """Our steps/s divided by the peer's, pair by pair over the repeats."""
    if runs[0]["who"] == peer:
        return "1"
    theirs = {row["repeat"]: row["steps_per_s"] for row in group if row["who"] == peer}
    pairs = [(row["steps_per_s"], theirs.get(row["repeat"])) for row in runs]
    ratios = [own / other for own, other in pairs if own and other]
    return spread(ratios, digits) if ratios else "–"


def threads_text(runs: Sequence[dict[str, Any]]) -> str:
    if runs[0]["threading"] == "one":
        return "1, on one core" if hasattr(os, "sched_setaffinity") else "1"
    known = sorted({row["threads"] for row in runs} - {None})
    return "its default" + (": " + ", ".join(map(str, known)) if known else "")


def bars(
    ax: "Axes",
    labels: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    *,
    ours: str,
    title: str,
    n_slots: int,
) -> None:
    """Horizontal bars, the first on top, ours in colour, each labelled with its value.

    With the same `n_slots` the bars of all panels have the same height.
    """
    colours = [COLOURS[0] if label == ours else GREY for label in labels]
    ax.barh(range(len(labels)), values, color=colours, height=0.62)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(n_slots - 0.5, -0.5)
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold")
    ax.grid(False)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    for i, (value, text) in enumerate(zip(values, texts, strict=True)):
        ax.annotate(text, (value, i), (4, 0), textcoords="offset points", va="center", fontsize=9)
    ax.set_xlim(0, 1.28 * max(values, default=1.0))
