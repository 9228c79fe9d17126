"""Damages runs at random, then reads, evaluates, plots and resumes them in this process.

    python -m tests.runs.fuzz --trials 5000 --seed 1

Every command must end with a result or with a one-line error: an exception that leaves the command
line, a command that hangs, a failed resume that removed a checkpoint, or a damaged run that hides
another one is a failure. Prints the failures and the figures.
"""

import argparse
import contextlib
import io
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.cli import main as cli
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config
from tests.runs.damage import MUTATIONS

LONGEST_S = 30
SLOW = ("eval", "train")
MORE = "264"  # env steps of a run that has 200
SMALL: dict[str, Any] = {
    "env_id": "CartPole-v1", "seed": 1, "n_envs": 2, "n_steps": 32, "hidden_dims": [8],
    "eval_freq_epochs": 1, "eval_episodes": 1, "test_episodes": 2, "checkpoint_freq_epochs": 1,
    "keep_checkpoints": 3, "early_stop_on_eval_threshold": None,
}  # fmt: skip
TEMPLATES: dict[str, dict[str, Any]] = {
    "ppo": {"max_env_steps": 200, "batch_size": 16, "n_epochs": 1},
    "dqn": {"max_env_steps": 200, "batch_size": 8, "buffer_size": 120, "learning_starts": 20,
            "train_freq": 8, "prioritized": True},
}  # fmt: skip


@dataclass
class Figures:
    trials: int = 0
    commands: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


def make_templates(root: Path) -> list[Path]:
    """One finished run per algorithm."""
    return [
        loop.train(build_config({"algo_id": algo, **SMALL, **fields}), runs_root=root).path
        for algo, fields in TEMPLATES.items()
    ]


def campaign(
    templates: list[Path], trials: int, seed: int, work: Path, quick: bool = False
) -> Figures:
    """`quick`: two commands for each damaged run, no pictures, and few that train."""
    figures = Figures()
    for trial in range(trials):
        rng = random.Random(f"{seed}-{trial}")
        root = work / "runs"
        shutil.rmtree(root, ignore_errors=True)
        template = templates[trial % len(templates)]
        for path in templates if not quick or trial < 20 else [template]:
            shutil.copytree(path, root / path.name, symlinks=True)
        # One run is damaged; the others must stay visible.
        mutation = rng.choice(MUTATIONS)
        try:
            what = f"{mutation.__name__}: {mutation(root / template.name, rng)}"
        except (OSError, ValueError) as error:  # the mutation itself does not apply
            figures.outcomes[f"not applied ({type(error).__name__})"] += 1
            continue
        figures.trials += 1
        figures.kinds[mutation.__name__] += 1
        tried = list(commands(template.name, str(root), rng))
        if quick:
            slow = rng.choice([argv for argv in tried if argv[0] in SLOW])
            if slow[0] == "train" and rng.random() < 0.7:
                slow[slow.index(MORE)] = "200"  # loads and checks all, then has no budget left
            tried = [rng.choice(tried[:4]), slow]
        for argv in tried:
            problem = try_command(argv, root, template.name, figures)
            if problem:
                command = " ".join(argv[:3])
                figures.failures.append(f"[{seed}-{trial}] {what} | {command}: {problem}")
    return figures


def commands(run: str, root: str, rng: random.Random) -> Iterator[list[str]]:
    place = ["--runs-dir", root]
    yield ["runs", *place]
    yield ["runs", *place, "--json"]
    yield ["run", run, *place]
    yield ["run", run, *place, "--json"]
    if rng.random() < 0.1:  # drawing takes most of the time
        yield ["plot", run, *place]
    yield ["eval", run, "--episodes", "1", "--greedy", *place]
    yield ["train", "--resume", run, "--max-env-steps", MORE, "-q", *place]
    yield ["run", run, *place]


def try_command(argv: list[str], root: Path, run: str, figures: Figures) -> str | None:
    """What is wrong with how the command ended; None if it ended well."""
    before = checkpoints(root / run)
    out, err = io.StringIO(), io.StringIO()
    figures.commands += 1
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), time_limit():
            code = cli.main(argv)
    except TimeoutError:
        return f"took more than {LONGEST_S} s"
    except BaseException as error:
        figures.outcomes["traceback"] += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"{type(error).__name__}: {str(error)[:150]} ({where})"
    figures.outcomes[f"{argv[0]} {code}"] += 1
    text = out.getvalue() + err.getvalue()
    if "Traceback" in text:
        return f"printed a traceback: {text[-300:]}"
    if "\x1b" in text:
        return "printed an escape sequence"
    if argv[0] == "train" and code == 2 and before - checkpoints(root / run):
        return "refused, and checkpoints are gone"
    if argv[0] == "runs":
        hidden = [p.name for p in root.iterdir() if p.name != run and p.name not in text]
        if code or hidden:
            return f"exit code {code}, not listed: {hidden} {err.getvalue()[:200]}"
    if code and len(err.getvalue().splitlines()) > 8:
        return f"an error of many lines: {err.getvalue()[:300]}"
    return None


def checkpoints(run: Path) -> set[str]:
    folder = run / "checkpoints"
    return {p.name for p in folder.iterdir() if p.name.isdecimal()} if folder.is_dir() else set()


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def expired(*_: object) -> None:
        raise TimeoutError

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    former = signal.signal(signal.SIGALRM, expired)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        templates = make_templates(Path(folder) / "templates")
        figures = campaign(templates, args.trials, args.seed, Path(folder))
    for failure in figures.failures:
        print(failure)
    print(f"{figures.trials} damaged runs, {figures.commands} commands, "
          f"{len(figures.failures)} failures, {time.monotonic() - started:.0f} s")  # fmt: skip
    print("outcomes:", dict(sorted(figures.outcomes.items())))
    print("damage:", dict(sorted(figures.kinds.items())))
    return 1 if figures.failures else 0


if __name__ == "__main__":
    sys.exit(main())
