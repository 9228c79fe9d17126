"""Makes the pictures of docs/ui.md: `python -m docs.make_ui_pictures`.

Trains short runs, an experiment and a sweep (some minutes), starts the web app on them and
photographs its pages with Chromium. `--runs-dir` takes runs that exist instead, `--only` makes some
of the pictures, `--every` makes pictures of every page at the width of a screen and of a phone.
GSOLVE_CHROMIUM names the browser. Look at the pictures before you commit them.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from gymnasium_solver.runs.manage import change_tags, set_note
from gymnasium_solver.runs.query import RunSummary, get_config, list_runs
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.web.app import BackgroundServer
from gymnasium_solver.serve.web.security import Settings

IMAGES = Path(__file__).parent / "images"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
COLOURS = 192  # of a picture: a page has few, and the file becomes half as large
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
    """Into the folder `runs`, which is the default: commands on the pages name no path."""
    single = (f"train {words} --max-env-steps 40_000" for words in TRAININGS)
    for words in (*TOGETHER, *single):
        command = [sys.executable, "-m", "gymnasium_solver", *words.split(), "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=root.parent)
    runs = list_runs(root)
    for run in runs[4:9]:
        change_tags(Run(Path(run.path)), ["paper"])
    set_note(Run(root / "too-fast"), "a learning rate that is far too high")


JOBS = "jobs"


def open_jobs(page: Any) -> None:
    """Start an evaluation and show it in the drawer."""
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Evaluate…").click()
    page.get_by_role("button", name="Evaluate", exact=True).click()
    page.locator(".job").first.wait_for()
    page.keyboard.press("Escape")
    page.locator(".jobs-button").click()
    page.get_by_role("dialog", name="Jobs").wait_for()


Shots = dict[str, tuple[str, str, dict[str, int], str]]
"""Picture -> (path, theme, size, what must be visible)."""


def every_page(root: Path) -> Shots:
    """All pages, light on a screen and dark on a phone. An episode is played for the inspector."""
    from gymnasium_solver.media.inspect import Ask, Studio

    runs = [run for run in list_runs(root) if run.checkpoints and run.test]
    runs.sort(key=lambda run: bool(run.solved), reverse=True)
    run, ids = runs[0].id, ",".join(run.id for run in runs[:8])
    studio = Studio(root)
    episode = studio.play(Ask(run, seed=7, greedy=False, most_steps=200)).id
    studio.close()
    tabs = ("curves", "spread", "evaluations", "config", "log", "machine")
    found = {
        "runs": ("", "table.runs a"), "experiments": ("experiments", "main h1"),
        "experiment": ("experiments/tuned-or-zoo", ".cells"),
        "sweep": ("sweeps/learning-rate", ".trials"),
        "start": ("start", ".config-card"), "compare": (f"compare?runs={ids}", ".chart canvas"),
        "run": (f"runs/{run}", ".chart canvas"),
        **{f"run-{tab}": (f"runs/{run}?tab={tab}", "[role=tabpanel] > *") for tab in tabs},
        JOBS: (f"runs/{run}", ".chart canvas"),
        "inspect": ("inspect", ".in-pick a"),
        "inspect-episode": (f"inspect/{run}?episode={episode}&t=30", "canvas.ep-frame[data-step]"),
    }  # fmt: skip
    sizes = (("1440", "light", WIDE), ("390", "dark", PHONE))
    return {
        f"{name}-{width}": (path, theme, size, ready)
        for name, (path, ready) in found.items()
        for width, theme, size in sizes
    }


def pages(root: Path) -> Shots:
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


def save_small(page: Any, path: Path) -> None:
    """A picture of the page, of few colours."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # Median cut would lose the colours of single points.
    few = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path)


def photograph(root: Path, images: Path, shots: Shots) -> None:
    from playwright.sync_api import sync_playwright

    program = os.environ.get("GSOLVE_CHROMIUM") or shutil.which("chromium")
    with BackgroundServer(Settings(root=root, port=0)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        for name, (path, theme, size, ready) in shots.items():
            options: dict[str, Any] = {"viewport": size, "color_scheme": theme}
            page = browser.new_page(**options)
            page.goto(server.settings.url + path)
            page.locator(ready).first.wait_for(timeout=60_000)
            if name.startswith(JOBS):
                open_jobs(page)
            page.wait_for_timeout(1500)  # curves and marks
            save_small(page, images / f"{name}.png")
            page.close()
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs-dir", type=Path, help="photograph these runs instead")
    parser.add_argument("--images", type=Path, help="where they go (default: docs/images)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these pictures")
    parser.add_argument("--every", action="store_true", help="every page, into docs/images/pages")
    args = parser.parse_args()
    images = args.images or (IMAGES / "pages" if args.every else IMAGES)
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs" if args.runs_dir is None else args.runs_dir.absolute()
        if args.runs_dir is None:
            train(root)
        shots = every_page(root) if args.every else pages(root)
        chosen = {name: shots[name] for name in args.only or shots}
        photograph(root, images, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
