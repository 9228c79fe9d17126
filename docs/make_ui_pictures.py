"""Makes the pictures of docs/ui.md: `python -m docs.make_ui_pictures`.

Trains short runs, an experiment and a sweep (some minutes), starts the web app on them and
photographs its pages with Chromium. `--runs-dir` takes runs that exist instead; GSOLVE_CHROMIUM
names the browser.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.runs.manage import change_tags, set_note
from gymnasium_solver.runs.query import RunSummary, get_config, list_runs
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.web.app import BackgroundServer
from gymnasium_solver.serve.web.security import Settings

IMAGES = Path(__file__).parent / "images"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 800}
TRAININGS = (
    *(
        f"CartPole-v1:ppo --policy-lr {lr} --seed {seed}"
        for lr in ("1e-3", "2e-4")
        for seed in range(1, 6)
    ),
    *(f"Acrobot-v1:ppo --seed {seed}" for seed in range(1, 4)),
    "CartPole-v1:ppo --policy-lr 0.3 --seed 1 --run-name too-fast",
)
TOGETHER = (
    "train CartPole-v1:ppo CartPole-v1:ppo_zoo --seeds 5 --experiment tuned-or-zoo "
    "--max-env-steps 20_000",
    "sweep CartPole-v1:ppo --param policy_lr=log:1e-5..1e-2 --param n_epochs=3..20 "
    "--param clip_range=0.1..0.4 --param gamma=logit:0.9..0.999 --trials 20 --name learning-rate "
    "--max-env-steps 6_000",
)


def train(root: Path) -> None:
    single = (f"train {words} --max-env-steps 40_000" for words in TRAININGS)
    for words in (*TOGETHER, *single):
        command = [sys.executable, "-m", "gymnasium_solver", *words.split()]
        quiet = ["-q", "--runs-dir", str(root)]
        subprocess.run([*command, *quiet], check=True, stdout=subprocess.DEVNULL)
    runs = list_runs(root)
    for run in runs[4:9]:
        change_tags(Run(Path(run.path)), ["paper"])
    set_note(Run(root / "too-fast"), "a learning rate that is far too high")


def pages(root: Path) -> dict[str, tuple[str, str, dict[str, int], str]]:
    """Picture -> (path, theme, size, what must be visible)."""
    runs = [
        run
        for run in list_runs(root)
        if run.env_id == "CartPole-v1" and run.test and not run.experiment
    ]
    ids = ",".join(run.id for run in runs)
    ordered = sorted(runs, key=lambda run: run.test["mean"] if run.test else 0.0)
    worst, best = ordered[0].id, ordered[-1].id
    chart = ".chart canvas"
    return {
        "ui-runs": ("", "light", WIDE, "table.runs a"),
        "ui-experiment": ("experiments/tuned-or-zoo", "light", WIDE, ".cells"),
        "ui-sweep": ("sweeps/learning-rate", "dark", WIDE | {"height": 1100}, ".trials"),
        "ui-run": (f"runs/{worst}", "light", WIDE | {"height": 1000}, chart),
        "ui-curves": (f"runs/{best}?tab=curves&smooth=0.6", "dark", WIDE, chart),
        "ui-compare": (f"compare?runs={ids}", "dark", WIDE | {"height": 900}, chart),
        "ui-groups": (f"compare?runs={ids}&by=hand&{by_hand(runs)}", "light", WIDE, chart),
        "ui-start": ("start?config=CartPole-v1:ppo&f.gamma=2", "light", WIDE, "fieldset"),
        "ui-phone": (f"runs/{best}", "dark", PHONE, chart),
        "ui-phone-runs": ("", "light", PHONE, "table.runs a"),
    }  # fmt: skip


def by_hand(runs: Sequence[RunSummary]) -> str:
    """The runs of each learning rate; the one that fails is left out."""
    rates = [float(get_config(run.id, Path(run.path).parent)["policy_lr"]) for run in runs]
    places = ["-" if rate > 0.1 else "0" if rate > 5e-4 else "1" for rate in rates]
    return f"names=large%20steps|small%20steps&in={','.join(places)}"


def photograph(root: Path, images: Path) -> None:
    from playwright.sync_api import sync_playwright

    program = os.environ.get("GSOLVE_CHROMIUM") or shutil.which("chromium")
    with BackgroundServer(Settings(root=root, port=0)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        for name, (path, theme, size, ready) in pages(root).items():
            options: dict[str, Any] = {"viewport": size, "color_scheme": theme}
            page = browser.new_page(**options)
            page.goto(server.settings.url + path)
            page.locator(ready).first.wait_for(timeout=60_000)
            page.wait_for_timeout(1500)  # curves and marks
            page.screenshot(path=images / f"{name}.png")
            page.close()
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs-dir", type=Path, help="photograph these runs instead")
    parser.add_argument("--images", type=Path, default=IMAGES)
    args = parser.parse_args()
    if args.runs_dir is not None:
        photograph(args.runs_dir.absolute(), args.images)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        train(root)
        photograph(root, args.images)
    return 0


if __name__ == "__main__":
    sys.exit(main())
