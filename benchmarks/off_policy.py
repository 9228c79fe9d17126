"""DQN on CartPole-v1 and SAC on HalfCheetah-v5 against SB3 and sbx, as processes from the shell.

    make bench ARGS="--only off_policy"

The same work on all sides: rl-zoo's hyper-parameters for DQN, the defaults of SB3 and sbx for SAC
(a test holds our configs and peers/off_policy.py together), evaluation off. Training steps/s leave
out start-up, random warm-up and compilation: they count from the same env step on for all.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import GSOLVE, FailedProcess, can_pin, cores, say, spread, table, timed
from benchmarks.peers.off_policy import WARM_STEPS
from benchmarks.training import OURS, SB3, THREADING, How, Peer
from gymnasium_solver.config.load import load_config
from gymnasium_solver.runs.query import get_metrics
from gymnasium_solver.training.threads import pick_threads

PEER_SCRIPT = "benchmarks/peers/off_policy.py"
SBX = "sbx"
LIBRARIES = {SB3: "sb3", SBX: "sbx"}  # as the peers' script calls them


class Case(NamedTuple):
    title: str
    config: str  # ours, with the peers' hyper-parameters
    env_steps: int
    quick_steps: int


CASES = {
    "dqn": Case("DQN CartPole-v1", "benchmarks/configs/cartpole_zoo.yaml:dqn", 20_000, 6_000),
    "sac": Case("SAC HalfCheetah-v5", "benchmarks/configs/halfcheetah_sb3.yaml:sac", 3_000, 1_200),
}


def find_peer(who: str, python: Path) -> Peer:
    if not python.exists():
        return Peer(who, None, {}, "its environment is not installed (make peers)")
    try:
        said = timed([str(python), PEER_SCRIPT, LIBRARIES[who], "dqn", "--versions"]).stdout
    except FailedProcess as error:
        return Peer(who, None, {}, str(error))
    return Peer(who, str(python), json.loads(said)["versions"])


# --- measuring


def measure(peers: Sequence[Peer], repeats: int, quick: bool) -> list[dict[str, Any]]:
    """One row a run; in each repeat all sides in turn, in alternating order."""
    rows = []
    for repeat in range(repeats):
        for threading, n_threads in THREADING.items():
            core = cores()[repeat % len(cores())] if threading == "one" else None
            how = How(seed=repeat + 1, n_threads=n_threads, core=core)
            for algo, case in CASES.items():
                say(f"off_policy: repeat {repeat + 1} of {repeats}, threads: {threading}, {algo}")
                env_steps = case.quick_steps if quick else case.env_steps
                which = {"algo": algo, "repeat": repeat, "threading": threading}
                sides = [None, *peers]
                for side in sides[::-1] if repeat % 2 else sides:
                    rows.append(which | run_side(side, algo, how, env_steps))
    return rows


def run_side(peer: Peer | None, algo: str, how: How, env_steps: int) -> dict[str, Any]:
    """One run of a peer, or of ours; a peer that is missing or fails is told in its row."""
    if peer is None:
        flag = f"--max-env-steps={env_steps}"
        return {"who": OURS} | run_ours(CASES[algo].config, how, flag, warm_steps=WARM_STEPS[algo])
    try:
        return {"who": peer.name} | run_peer(peer, algo, how, f"--steps={env_steps}")
    except FailedProcess as error:
        say(f"bench: {peer.name} failed: {error}")
        return {"who": peer.name, "error": str(error)}


def run_ours(config: str, how: How, *flags: str, warm_steps: int = 0) -> dict[str, Any]:
    command = [GSOLVE, "train", config, f"--seed={how.seed}", "-q", *flags]
    if how.n_threads:
        command.append(f"--n-threads={how.n_threads}")
    with tempfile.TemporaryDirectory() as runs_dir:
        where = {"GSOLVE_RUNS": runs_dir}
        done = timed(command, core=how.core, n_threads=how.n_threads, environment=where)
        run = json.loads(timed([GSOLVE, "run", "@last", "--json"], environment=where).stdout)
        times = get_metrics("@last", ["wall_s"], Path(runs_dir))["wall_s"]
    evals = [event for event in run["evals"] if event["stage"] == "val"]
    return {
        "wall_s": done.wall_s,
        "others_cores": done.others_cores,
        "threads": how.n_threads or pick_threads(load_config(config)),
        "env_steps": run["env_steps"],
        "steps_per_s": rate(times, warm_steps),
        "evals": [{"env_steps": event["env_steps"], "mean": event["mean"]} for event in evals],
    }


def run_peer(peer: Peer, algo: str, how: How, *flags: str) -> dict[str, Any]:
    if peer.python is None:
        raise FailedProcess(peer.missing)
    command = [peer.python, PEER_SCRIPT, LIBRARIES[peer.name], algo, f"--seed={how.seed}", *flags]
    if how.n_threads:
        command.append(f"--threads={how.n_threads}")
    done = timed(command, core=how.core, n_threads=how.n_threads)
    run = json.loads(done.stdout)
    run.pop("versions")
    return {"wall_s": done.wall_s, "others_cores": done.others_cores} | run


def rate(times: Sequence[tuple[int, float | None]], warm_steps: int) -> float | None:
    """Env steps a second from the first row at or after `warm_steps` to the last; None: no time."""
    warm = [(steps, s) for steps, s in times if s is not None and steps >= warm_steps]
    if len(warm) < 2 or warm[-1][1] <= warm[0][1]:
        return None
    return (warm[-1][0] - warm[0][0]) / (warm[-1][1] - warm[0][1])


# --- the table


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    done = [row for row in rows if "error" not in row]
    cells = []
    for algo in CASES:
        for threading in THREADING:
            group = [r for r in done if (r["algo"], r["threading"]) == (algo, threading)]
            for who in (OURS, *LIBRARIES):
                if runs := [row for row in group if row["who"] == who]:
                    cells.append(_cells(group, runs))
    failed = {f"- {r['who']}, {CASES[r['algo']].title}: {r['error']}" for r in rows if "error" in r}
    head = ("task", "library", "threads", "training, steps/s", "× SB3", "× sbx")
    return "\n\n".join([table((*head, "shell to the end, s", "env steps"), cells), *sorted(failed)])


def _cells(group: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """A line of the table: one library's runs, out of a group with one task and one threading."""
    rates = [row["steps_per_s"] for row in runs if row["steps_per_s"]]
    return (
        CASES[runs[0]["algo"]].title,
        runs[0]["who"],
        _threads_text(runs),
        spread(rates) if rates else "–",
        ratio(group, runs, SB3),
        ratio(group, runs, SBX),
        spread([row["wall_s"] for row in runs], 1),
        f"{max(row['env_steps'] for row in runs):,}",
    )


def _threads_text(runs: Sequence[dict[str, Any]]) -> str:
    if runs[0]["threading"] == "one":
        return "1, on one core" if can_pin() else "1"
    known = sorted({row["threads"] for row in runs} - {None})
    return "its default" + (": " + ", ".join(map(str, known)) if known else "")


def ratio(group: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], peer: str) -> str:
    """How many times as fast as the peer, pair by pair over the repeats."""
    if runs[0]["who"] == peer:
        return "1"
    theirs = {row["repeat"]: row["steps_per_s"] for row in group if row["who"] == peer}
    pairs = [(row["steps_per_s"], theirs.get(row["repeat"])) for row in runs]
    ratios = [own / other for own, other in pairs if own and other]
    return spread(ratios, 2) if ratios else "–"
