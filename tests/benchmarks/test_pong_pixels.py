"""The pixel benchmark on an environment of our own: what it writes, and that it stops in time."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pong_pixels


def row(env_steps: int, wall_s: float, env: float, act: float, update: float) -> dict[str, Any]:
    shares = {"env": env, "act": act, "update": update}
    return {
        "env_steps": env_steps,
        "wall_s": wall_s,
        **{f"{pong_pixels.TIMING}/{part}_share": share for part, share in shares.items()},
    }


def test_speed_leaves_the_warm_up_out() -> None:
    # 10 s of warm-up for 100 steps, then 40 s for 4,000: 10 s env, 10 s act, 20 s update
    rows = [row(100, 10.0, 0.1, 0.1, 0.8), row(4100, 50.0, 0.22, 0.22, 0.56)]
    speed = pong_pixels.speed(rows)
    assert speed["steps_per_s"] == pytest.approx(100.0)
    assert speed["parts"]["update"]["share"] == pytest.approx(0.5)
    assert speed["parts"]["env"]["steps_per_s"] == pytest.approx(400.0)


def test_a_run_leaves_figures_a_curve_and_a_picture(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--n-envs", "4", "--set", "n_steps=8", "env_kwargs={shape: [1, 16, 16]}"]
    argv = ["Probe/Image-v0:ppo", "--minutes", "0.02", "--out", "out", "--device", "cpu", *small]
    pong_pixels.main(argv)
    result = json.loads((tmp_path / "out/pong_pixels.json").read_text())
    assert result["env_steps"] < result["config"]["max_env_steps"]  # the minutes ended it
    assert result["steps_per_s"] > 0
    assert result["device"] == "cpu"
    assert set(result["parts"]) == {"env", "act", "update"}
    assert all(part["share"] > 0 for part in result["parts"].values())
    assert result["curve"][-1]["env_steps"] == result["env_steps"]
    assert -1 <= result["curve"][-1]["return_mean"] <= 1
    assert "--out" not in result["command"]
    assert (tmp_path / "out/pong_pixels.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]  # the run itself is thrown away
