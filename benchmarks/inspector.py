"""How fast the inspector answers: until the first frame, and from the slider to the image.

    .venv/bin/python -m benchmarks.inspector [--config CartPole-v1:ppo] [--seeks 200] [--out FILE]

A short training, then a real server (`gsolve ui`), its worker and chromium (GSOLVE_CHROMIUM, or on
the PATH). Times are taken inside the page, by its own clock, when the frame of the step that was
asked for has been drawn on the canvas. Printed as JSON.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium_solver as gs
from gymnasium_solver.runs.episodes import list_episodes
from gymnasium_solver.serve.web.server import BackgroundServer
from gymnasium_solver.serve.web.settings import Settings

# Moves the slider and waits until the canvas shows that step; milliseconds.
SEEK = """([t]) => new Promise((done) => {
  const canvas = document.querySelector("canvas.ep-frame");
  const slider = document.querySelector(".ep-slider");
  const start = performance.now();
  const look = () => {
    if (canvas.dataset.step !== String(t)) return;
    watch.disconnect();
    done(performance.now() - start);
  };
  const watch = new MutationObserver(look);
  watch.observe(canvas, { attributes: true });
  slider.value = String(t);
  slider.dispatchEvent(new Event("input"));
  look();
})"""


def first_frame_s(page: Any, url: str) -> float:
    """From opening the address of a recorded episode to its first frame."""
    start = time.perf_counter()
    page.goto(url)
    page.locator("canvas.ep-frame[data-step='0']").wait_for(timeout=120_000)
    return time.perf_counter() - start


def play_s(page: Any, seed: int) -> float:
    """From the button to the first frame of the new episode."""
    page.get_by_role("textbox", name="Seed").fill(str(seed))
    start = time.perf_counter()
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_url(f"**episode=*seed{seed}-*", timeout=180_000)
    page.locator("canvas.ep-frame[data-step]").wait_for(timeout=120_000)
    return time.perf_counter() - start


def spread(numbers: list[float]) -> dict[str, float]:
    ordered = sorted(numbers)
    at = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[round(share * last)], 2) for name, share in at.items()}


def measure(config: str, seeks: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("GSOLVE_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder) / "runs"
        run = gs.train(config, max_env_steps=5000, seed=1, quiet=True, runs_dir=root)
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        with BackgroundServer(Settings(root=root, port=0), any_port=False) as server:
            url = f"http://127.0.0.1:{server.settings.port}/inspect/{run.id}"
            page.goto(url)
            cold, warm = play_s(page, 1), [play_s(page, seed) for seed in (2, 3, 4)]
            page.locator(".ep-facts[data-status='done']").wait_for(timeout=120_000)
            episode = next(one for one in list_episodes(run) if one.facts["seed"] == 4)
            address = f"{url}?episode={episode.id}"
            reopened = [first_frame_s(page, address) for _ in range(5)]
            last, rng = int(episode.result["steps"]), random.Random(0)
            steps = [rng.randrange(1, last) for _ in range(seeks)]
            times = [page.evaluate(SEEK, [t]) for t in steps]
        browser.close()
        size = sum(path.stat().st_size for path in episode.path.iterdir())
    return {
        "config": config,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "play_to_first_frame_s": {
            "cold": round(cold, 2),
            "warm": round(statistics.median(warm), 2),
        },
        "reopen_to_first_frame_s": round(statistics.median(reopened), 2),
        "slider_to_image_ms": {"first_of_each_pack": spread(times[:8]), "all": spread(times)},
        "steps": last,
        "bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="CartPole-v1:ppo")
    parser.add_argument("--seeks", type=int, default=200)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    text = json.dumps(measure(args.config, args.seeks), indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
