"""Makes the pictures of docs/inspect.md: the inspector in a browser.

    .venv/bin/python -m docs.make_inspect_pictures

Agents are trained for seconds, episodes are played by the worker of a real server, and chromium
takes the pictures (GSOLVE_CHROMIUM, or `chromium` on the PATH). Look at them before you commit
them.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

import gymnasium_solver as gs
from docs.make_ui_pictures import IMAGES, save_small
from gymnasium_solver.media.inspect import Ask, Branch, Studio
from gymnasium_solver.runs.episode_tables import notable
from gymnasium_solver.serve.web.app import BackgroundServer
from gymnasium_solver.serve.web.security import Settings

SIZE: Any = {"width": 1440, "height": 1000}


def open_page(page: Any, url: str, t: int) -> None:
    page.goto(url)
    frames = page.locator("canvas.ep-frame")
    expect(frames.first).to_have_attribute("data-step", str(t), timeout=60_000)
    page.wait_for_timeout(800)  # thumbnails


def cartpole(page: Any, url: str, studio: Studio) -> None:
    run = gs.train("CartPole-v1:ppo", max_env_steps=4000, seed=1, quiet=True, runs_dir=studio.root)
    for seed in range(5):
        studio.play(Ask(run.id, seed=seed, greedy=False))
    base = studio.play(Ask(run.id, seed=7, greedy=False))
    step = max(1, int(base.result["steps"]) - 12)
    other = 1 - int(base.actions()[step])
    branch = studio.play(Ask(run.id, branch=Branch(base.id, step, other)))
    last = notable(base)[-1]["step"] - 3
    open_page(page, f"{url}inspect/{run.id}?episode={base.id}&t={last}", last)
    save_small(page, IMAGES / "inspect.png")
    page.emulate_media(color_scheme="dark")
    open_page(page, f"{url}inspect/{run.id}?episode={branch.id}&with={base.id}&t={step}", step)
    expect(page.locator(".in-difference")).to_have_attribute("data-step", str(step))
    save_small(page, IMAGES / "inspect-branch.png")
    page.emulate_media(color_scheme="light")


def pong(page: Any, url: str, studio: Studio) -> None:
    fields: dict[str, Any] = {
        "max_env_steps": 1500,
        "n_envs": 4,
        "max_episode_steps": 300,
        "test_episodes": 1,
    }
    run = gs.train("ALE/Pong-v5:ppo", seed=1, quiet=True, runs_dir=studio.root, **fields)
    episode = studio.play(Ask(run.id, seed=1))
    open_page(page, f"{url}inspect/{run.id}?episode={episode.id}&t=50", 50)
    page.keyboard.press("s")
    frame = page.locator("canvas.ep-frame")
    expect(frame).to_have_attribute("data-why", "gradcam", timeout=120_000)
    save_small(page, IMAGES / "inspect-network.png")


def main() -> None:
    path = os.environ.get("GSOLVE_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder) / "runs"
        studio = Studio(root)
        browser = playwright.chromium.launch(executable_path=path)
        page = browser.new_page(viewport=SIZE)
        with BackgroundServer(Settings(root=root, port=0), any_port=False) as server:
            url = f"http://127.0.0.1:{server.settings.port}/"
            cartpole(page, url, studio)
            pong(page, url, studio)
        browser.close()
        studio.close()


if __name__ == "__main__":
    main()
