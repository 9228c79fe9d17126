"""Writes the tables results/*.md again from the raw figures in results/*.json, training nothing.

    .venv/bin/python -m benchmarks.rewrite

For when the form of a table or a rule changes. A test fails when a table is stale.
"""

import json
from collections.abc import Callable
from typing import Any

from benchmarks import (
    alerts_healthy,
    alerts_ill,
    auto,
    before_after,
    c_envs,
    collectors,
    curves,
    device_envs,
    device_physics,
    envpool_families,
    export_latency,
    gpu,
    inspector,
    learning,
    memory_speed,
    newcomer,
    own_envs,
    pong_speed,
    profile_updates,
    runs_listing,
    stack,
    sweep_classics,
    ui_load,
    ui_tensorboard,
    verdicts,
)
from gymnasium_solver.bench import report
from gymnasium_solver.bench.harness import ROOT

RESULTS = ROOT / "benchmarks/results"
PAGES: dict[str, Callable[[dict[str, Any]], str]] = {
    "own_envs": own_envs.markdown,
    **{
        module.NAME: module.markdown
        for module in (
            auto,
            before_after,
            c_envs,
            collectors,
            device_envs,
            device_physics,
            export_latency,
            inspector,
            memory_speed,
            pong_speed,
            runs_listing,
            stack,
            sweep_classics,
            ui_load,
            ui_tensorboard,
            verdicts,
        )
    },
}
"""By the `benchmark` field of a result. Older results lack it and are recognised by their keys."""
# Results whose page is written by hand: one run each, described together.
BY_HAND = ("pong_pixels", "pong_pixels_v4")


def main() -> None:
    for name, result in results().items():
        if name in BY_HAND:
            continue
        text, target = page(result), RESULTS / f"{name}.md"
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
            print(target.relative_to(ROOT))


def results() -> dict[str, dict[str, Any]]:
    """All raw figures by name, without those of `gsolve benchmark`, which writes its own tables."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    return {name: result for name, result in found.items() if "experiment" not in result}


def page(result: dict[str, Any]) -> str:
    """The page of a result, by the benchmark that made it."""
    if result.get("benchmark") in PAGES:
        text = PAGES[result["benchmark"]](result)
    elif "ill_runs" in result:
        text = alerts_ill.markdown(result)
    elif "healthy_runs" in result:
        text = alerts_healthy.markdown(result)
    elif "parts" in result:
        text = report.markdown(result)
    elif "profiles" in result:
        text = profile_updates.markdown(result)
    elif "rows" in result:
        text = gpu.markdown(result)
    elif "tried" in result:
        text = envpool_families.markdown(result)
    elif "cases" in result:
        text = newcomer.markdown(result)
    elif "eval_every" in result:
        text = curves.markdown(result)
    else:
        text = learning.markdown(result)
    return text.rstrip() + "\n"


if __name__ == "__main__":
    main()
