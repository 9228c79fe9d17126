"""How fast the inspector answers: until the first frame, and from the slider to the image.

    make peers-ui && .venv/bin/python -m benchmarks.inspector       # about 3 minutes
    .venv/bin/python -m benchmarks.inspector --quick

A short training, then a real server (`gsolve ui`), its worker and Chromium (GSOLVE_CHROMIUM, or on
the PATH). Times are taken inside the page, by its own clock, when the frame of the step that was
asked for has been drawn. Beside it the same episode in an app made with Gradio, which the usual
inspectors are written in (peers/gradio_inspector.py, from .venv-peers-ui); if Gradio is missing,
the result says so.

Raw figures go to results/inspector.json, the table to results/inspector.md.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium_solver as gs
from benchmarks.ui_server import (
    chromium,
    free_port,
    get,
    gsolve_ui,
    percentiles,
    serving,
    tree_mib,
    wait,
)
from benchmarks.ui_tensorboard import PEERS_PYTHON, version_of
from gymnasium_solver.bench.harness import ROOT, describe, header, say, table, write
from gymnasium_solver.runs.episodes import Episode, list_episodes

NAME = "inspector"
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
# The same in Gradio: its image gets another address, and is then loaded.
GRADIO_SEEK = """([t]) => new Promise((done) => {
  const slider = document.querySelector("input[type=range]");
  const before = document.querySelector("#frame img")?.src;
  const start = performance.now();
  const look = () => {
    const image = document.querySelector("#frame img");
    if (!image || image.src === before || !image.complete) return;
    clearInterval(timer);
    done(performance.now() - start);
  };
  const timer = setInterval(look, 2);
  slider.value = String(t);
  for (const name of ["input", "change", "pointerup"]) slider.dispatchEvent(new Event(name, { bubbles: true }));
})"""  # noqa: E501


def first_frame_s(page: Any, url: str, frame: str) -> float:
    """From opening the address of a recorded episode to its first frame."""
    start = time.perf_counter()
    page.goto(url)
    page.locator(frame).first.wait_for(timeout=120_000)
    return time.perf_counter() - start


def play_s(page: Any, seed: int) -> float:
    """From the button to the first frame of the new episode."""
    page.get_by_role("textbox", name="Seed").fill(str(seed))
    start = time.perf_counter()
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_url(f"**episode=*seed{seed}-*", timeout=180_000)
    page.locator("canvas.ep-frame[data-step]").wait_for(timeout=120_000)
    return time.perf_counter() - start


def steps_of(last: int, n: int) -> list[int]:
    """Steps to go to, never the same twice in a row."""
    rng = random.Random(0)
    found = [rng.randrange(1, last) for _ in range(n)]
    return [t for t, before in zip(found, [None, *found], strict=False) if t != before]


def ours(browser: Any, root: Path, run: gs.Run, args: argparse.Namespace) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    frame = "canvas.ep-frame[data-step='0']"
    with gsolve_ui(root) as server:
        wait(lambda: get(server.url) is not None, server)
        url = f"{server.url}/inspect/{run.id}"
        page.goto(url)
        cold, warm = play_s(page, 1), [play_s(page, seed) for seed in range(2, 2 + args.plays)]
        page.locator(".ep-facts[data-status='done']").wait_for(timeout=120_000)
    seed = 1 + args.plays
    episode = next(one for one in list_episodes(run) if one.facts["seed"] == seed)
    with gsolve_ui(root) as server:
        wait(lambda: get(server.url) is not None, server)
        address = f"{server.url}/inspect/{run.id}?episode={episode.id}"
        first_frame_s(page, address, frame)
        from_start = time.monotonic() - server.started
        reopened = [first_frame_s(page, address, frame) for _ in range(args.opens)]
        last = int(episode.result["steps"])
        times = [page.evaluate(SEEK, [t]) for t in steps_of(last, args.seeks)]
        memory = tree_mib(server.process.pid)
    page.close()
    return {
        "start of the process to the first frame, s": from_start,
        "opening to the first frame, s": statistics.median(reopened),
        "slider to image, ms": percentiles(times, 1.0)._asdict(),
        "memory, MiB": memory,
        "play, first": cold,
        "play, again": statistics.median(warm),
        "steps": last,
        "bytes": sum(path.stat().st_size for path in episode.path.iterdir()),
    }


def export_frames(episode: Episode, folder: Path) -> None:
    columns = episode.columns()
    names = ("reward", "return", "value", "return_to_go", "advantage")
    rows = [
        {"step": t, **{n: float(columns[n][t]) for n in names if n in columns}}
        for t in range(episode.n_frames("render"))
    ]
    folder.mkdir()
    for t in range(len(rows)):
        (folder / f"{t}.png").write_bytes(episode.frame("render", t))
    (folder / "steps.json").write_text(json.dumps(rows).replace("NaN", "null"))


def gradio(
    browser: Any, folder: Path, last: int, python: Path, args: argparse.Namespace
) -> dict[str, Any]:
    port = free_port()
    script = ROOT / "benchmarks/peers/gradio_inspector.py"
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    frame = "#frame img"
    offline = os.environ | {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
    with serving([str(python), str(script), str(folder), str(port)], port, env=offline) as server:
        wait(lambda: get(server.url) is not None, server)
        first_frame_s(page, server.url, frame)
        from_start = time.monotonic() - server.started
        opened = [first_frame_s(page, server.url, frame) for _ in range(args.opens)]
        page.wait_for_timeout(1000)  # until it is wired
        times = [page.evaluate(GRADIO_SEEK, [t]) for t in steps_of(last, args.seeks)]
        memory = tree_mib(server.process.pid)
    page.close()
    return {
        "start of the process to the first frame, s": from_start,
        "opening to the first frame, s": statistics.median(opened),
        "slider to image, ms": percentiles(times, 1.0)._asdict(),
        "memory, MiB": memory,
    }


def why_no_gradio(python: Path) -> str | None:
    if not python.exists():
        return f"there is no {python.parent.parent.name}: make peers-ui installs it"
    done = subprocess.run([python, "-c", "import gradio"], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def markdown(result: dict[str, Any]) -> str:
    tools, own = result["tools"], result["tools"]["gsolve ui"]
    names = [name for name in own if name.startswith(("start", "opening", "memory"))]
    rows = [[name, *(f"{tool[name]:,.2f}" for tool in tools.values())] for name in names]
    slider = [tool["slider to image, ms"] for tool in tools.values()]
    rows[2:2] = [
        [f"slider to image, {label}, ms", *(f"{one[key]:,.0f}" for one in slider)]
        for key, label in (("p50", "median"), ("p95", "95 %"), ("max", "slowest"))
    ]
    titles = [f"{tool} {result['gradio']}" if tool == "Gradio" else tool for tool in tools]
    page = [
        "# The inspector",
        describe(result),
        f"{result['args']['config']}, an episode of {own['steps']} steps ({own['bytes'] / 1e6:.1f} "
        f"MB), {slider[0]['n']} random moves of the slider.",
        table(["", *titles], rows),
        f"A new episode, from the button to its first frame: {own['play, first']:.2f} s for the "
        f"first one, which starts the process with torch, then {own['play, again']:.2f} s.",
    ]
    missing = [f"Gradio is missing: {result['missing']}."] if result["missing"] else []
    return "\n\n".join([*page, *missing])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="inspector.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", default="CartPole-v1:ppo")
    parser.add_argument("--seeks", type=int, default=200)
    parser.add_argument("--opens", type=int, default=5)
    parser.add_argument("--plays", type=int, default=3)
    parser.add_argument("--peers-python", type=Path, default=PEERS_PYTHON)
    parser.add_argument("--quick", action="store_true", help="a short pass")
    parser.add_argument("--out", type=Path, help="folder of the result files")
    args = parser.parse_args()
    if args.quick:
        args.seeks, args.opens, args.plays = 20, 1, 1
    found = header("python -m benchmarks.inspector" + (" --quick" if args.quick else ""))
    missing = why_no_gradio(args.peers_python)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        if browser is None:
            print("no chromium: install one or set GSOLVE_CHROMIUM", file=sys.stderr)
            return 1
        root = Path(folder) / "runs"
        run = gs.train(args.config, max_env_steps=5000, seed=1, quiet=True, runs_dir=root)
        say("gsolve ui")
        tools = {"gsolve ui": ours(browser, root, run, args)}
        if missing is None:
            say("Gradio")
            seed = 1 + args.plays
            episode = next(one for one in list_episodes(run) if one.facts["seed"] == seed)
            export_frames(episode, Path(folder) / "frames")
            last = tools["gsolve ui"]["steps"]
            frames = Path(folder) / "frames"
            tools["Gradio"] = gradio(browser, frames, last, args.peers_python, args)
    found |= {"args": {name: getattr(args, name) for name in ("config", "seeks", "opens", "plays")}}
    found |= {"benchmark": NAME, "missing": missing, "tools": tools}
    found["gradio"] = "" if missing else version_of(args.peers_python, "gradio")
    out = args.out or ROOT / ("build/bench" if args.quick else "benchmarks/results")
    write(out, NAME, found, markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
