"""The main paths through real processes: train, look, evaluate, plot, interrupt, resume."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import gymnasium_solver as gs
from gymnasium_solver.cli import configs
from gymnasium_solver.cli import main as cli
from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.output import status_text
from gymnasium_solver.cli.runs import runs_table
from gymnasium_solver.runs.query import list_runs

TINY = ("--max-env-steps", "600", "--eval-freq-epochs", "1", "--eval-episodes", "3", "--seed", "3")
# A test of as many episodes as `eval` plays by itself, which a short training does not pay for.
JUDGED = ("--test-episodes", "10", "--eval-deterministic", "true")
FLAGS = ("CartPole-v1:ppo", *TINY, *JUDGED, "--early-stop-on-eval-threshold", "null")


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "gymnasium_solver.cli.main", *argv]


def gsolve(*argv: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    env = {k: v for k, v in os.environ.items() if k not in ("GSOLVE_RUNS", "COLUMNS")}
    return subprocess.run(command(*argv), cwd=cwd, capture_output=True, text=True, env=env)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A working folder with one finished run in ./runs."""
    path = tmp_path_factory.mktemp("work")
    done = gsolve("train", *FLAGS, cwd=path)
    assert done.returncode == 0, done.stderr
    assert "not solved" in done.stdout
    return path


@pytest.fixture
def inside(folder, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    return folder


def test_a_run_folder_is_left_that_tells_itself(inside, gsolve):
    (run,) = gsolve.json("runs")
    assert (run["env_id"], run["algo_id"], run["seed"]) == ("CartPole-v1", "ppo", 3)
    assert (run["status"], run["stop_reason"], run["env_steps"]) == (
        "finished",
        "max_env_steps",
        600,
    )
    path = inside / "runs" / run["id"]
    log = (path / "run.log").read_text()
    assert "600 env steps" in log
    assert "not solved" in log
    assert "\x1b" not in log
    meta = json.loads((path / "meta.json").read_text())
    assert meta["command"] == ["gsolve", "train", *FLAGS]
    assert gs.load_config(str(path / "config.yaml")).max_env_steps == 600

    whole = gsolve.json("run @last")
    assert whole["id"] == run["id"]
    assert {e["stage"] for e in whole["evals"]} == {"val", "test"}
    assert set(whole["test"]) == {"mean", "stderr", "episodes", "greedy"}
    [greedy] = [e for e in whole["evals"] if e["stage"] == "test" and e["greedy"]]
    assert whole["test"]["mean"] == greedy["mean"]
    assert whole["checkpoints"][-1]["last"]


def test_tables_for_people(inside, gsolve):
    table = gsolve("runs")
    assert "CartPole-v1-ppo-" in table
    assert all(line == line.rstrip() for line in table.splitlines())
    text = gsolve("run @last")
    for part in ("not solved", "checkpoint", "@best", "@last", "val at", "gsolve train --resume"):
        assert part in text
    assert len(gsolve("run @last --log 2").splitlines()) == 2
    assert "no run matches 'no-such-run'" in gsolve("runs no-such-run")
    assert "no run 'no-such-run'" in gsolve("run no-such-run", code=2)


def test_eval_repeats_the_stored_figures(inside, gsolve):
    """The test after training, and the evaluation that a checkpoint was chosen by."""
    run = gsolve.json("run @last")
    stored = {e["greedy"]: e["returns"] for e in run["evals"] if e["stage"] == "test"}
    now = gsolve.json("eval @last")
    assert now["scores"]["greedy"]["returns"] == stored[True]
    assert now["scores"]["sampled"]["returns"] == stored[False]
    for checkpoint in run["checkpoints"]:
        if checkpoint["score"] is None:
            continue
        ref = f"@last/{checkpoint['env_steps']}"
        again = gsolve.json("eval", ref, "--seed", "val", "--greedy")
        assert again["scores"]["greedy"]["mean"] == checkpoint["score"] == again["stored"]


def test_eval_options(inside, capsys, gsolve):
    one = gsolve.json("eval @last --episodes 5 --sampled --seed 7")
    assert list(one["scores"]) == ["sampled"]
    assert len(one["scores"]["sampled"]["returns"]) == 5
    assert one["seed"] == 7
    text = gsolve("eval @last --greedy")
    assert "greedy" in text
    assert "sampled" not in text
    assert "Did you mean debug?" in gsolve("eval @last --log-level debg", code=2)
    for level, told in (("info", False), ("debug", True)):
        few = ["--episodes", "2", "--greedy", "--json", "--log-level", level]
        assert cli.main(["eval", "@last", *few]) == 0
        spoken = capsys.readouterr()
        assert ("debug: made CartPole-v1 × 2 on vector" in spoken.err) == told
        assert json.loads(spoken.out)["scores"]


def test_resume_says_what_changes_and_goes_on(inside, tmp_path, gsolve):
    root = tmp_path / "elsewhere"
    start, _, path = gsolve("train", *FLAGS, "-q", "--runs-dir", str(root)).splitlines()
    assert start.startswith("CartPole-v1:ppo: training for 600 env steps")
    assert Path(path).parent == root
    again = ("train --resume @last --runs-dir", str(root))
    assert "budget" in gsolve(*again, code=2)  # nothing is left to do
    text = gsolve(*again, "--max-env-steps", "900", "--policy-lr", "1e-4")
    assert "resumed at 600 env steps" in text
    assert "max_env_steps: 600 → 900" in text
    assert "policy_lr: 0.003 → 0 linear → 0.0001" in text
    (run,) = gsolve.json("runs --runs-dir", str(root))
    assert run["env_steps"] == 900
    assert gs.load_config(f"{path}/config.yaml").max_env_steps == 900


def test_resume_of_a_named_checkpoint_in_the_reference_spelling(inside, tmp_path, gsolve):
    root = str(tmp_path)
    gsolve("train", *FLAGS, "-q", "--runs-dir", root)
    again = ("train --resume @last -q --max-env-steps 700 --runs-dir", root, "--epoch")
    assert "named by env steps" in gsolve(*again, "3", code=2)
    gsolve(*again, "@best")


def test_going_back_tells_what_it_removes(inside, tmp_path, gsolve):
    root = str(tmp_path)
    flags = ["--checkpoint-freq-epochs", "1", "--keep-checkpoints", "9", "--n-steps", "25"]
    gsolve("train", *FLAGS, *flags, "--runs-dir", root, "-q")
    before = [c["env_steps"] for c in gsolve.json("run @last --runs-dir", root)["checkpoints"]]
    again = ("train -q --runs-dir", root, "--max-env-steps")
    # From the last one nothing is removed.
    assert "removed" not in gsolve(*again, "800", "--resume", "@last")
    text = gsolve(*again, "900", "--resume", f"@last/{before[1]}")
    assert f"warning: going back to {before[1]} env steps; everything later is removed: " in text
    assert "800 @last" in text.partition("\n")[0]


def test_a_run_is_no_config(inside, gsolve):
    (run,) = gsolve.json("runs")
    for target, name in (
        ("@last", "@last"),
        (run["id"], run["id"]),
        ("@last/@best", "@last/@best"),
    ):
        told = gsolve("train", target, code=2)
        assert f"gsolve train --resume {name}\n" in told
        assert f"gsolve train runs/{name.partition('/')[0]}/config.yaml" in told


def test_next_lines_and_the_report(inside, tmp_path, gsolve):
    """They work as they stand: with the runs' place, and with the flag that gives more to do."""
    place = str(tmp_path / "my runs")
    told = gsolve("train", *FLAGS, "--runs-dir", place)
    for text in (told, gsolve("run @last --runs-dir", place)):
        steps = re.findall(r"^ +(?:next +|watch +)?gsolve (.*)", text, re.M)
        assert [step.split()[0] for step in steps[-4:]] == ["eval", "plot", "ui", "train"]
        assert len(steps) == 4 + (text is told)  # while it trains: gsolve ui
        assert all(f"--runs-dir '{place}'" in step for step in steps)
        assert steps[-1].endswith("--max-env-steps 1200")
    (report,) = Path(place).glob("CartPole*/report.md")
    assert (
        f"gsolve train --resume {report.parent.name} --max-env-steps 1200\n" in report.read_text()
    )


def test_runs_on_a_narrow_terminal(inside):
    root = inside / "runs"
    (run,) = list_runs(root)
    runs = [
        replace(run, solved=True, threshold=475.0, status=status, env_steps=10_000_000)
        for status in ("interrupted", "finished")
    ]
    for width in (50, 80, 100):
        screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
        screen.print(runs_table(screen, runs))
        assert isinstance(screen.file, io.StringIO)
        head, *lines = screen.file.getvalue().splitlines()
        assert len(lines) == 2  # nothing is folded
        assert all(len(line) <= width for line in lines)
        assert "interrupted ★" in lines[0]
        assert "★ solved" in lines[1]
        assert all(run.id[-11:] in line for line in lines)
        assert ("time" in head, "env steps" in head) == (width >= 80, width >= 80)
        assert (run.id in lines[0]) == (width == 100)
    killed = replace(run, solved=False, status="killed")
    assert str(status_text(killed)) == "killed"


def test_field_help_on_a_narrow_terminal(monkeypatch):
    config = gs.load_config("CartPole-v1:ppo")
    for width, stacked in ((80, True), (120, False)):
        screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
        monkeypatch.setattr(out, "make_console", lambda screen=screen: screen)
        configs.print_field_help("CartPole-v1:ppo", config)
        assert isinstance(screen.file, io.StringIO)
        text = screen.file.getvalue()
        assert ("\n      Environment to solve, as Gymnasium names it" in text) == stacked
        assert max(map(len, text.splitlines())) <= width


def test_divergence_exits_1_and_tells_what_to_do(tmp_path, gsolve):
    wild = ("--policy-lr", "1e20", "--max-grad-norm", "null", "--seed", "1")
    told = gsolve("train CartPole-v1:ppo", *wild, "--runs-dir", str(tmp_path), code=1)
    assert all(part in told for part in ("not finite", "FAILED", "--policy-lr LOWER"))


def test_init_from_run(inside, tmp_path, gsolve):
    (run,) = gsolve.json("runs")
    flags = ["--init-from-run", f"{run['id']}/@best", "--runs-dir", str(inside / "runs")]
    try:
        assert f"started from {run['id']}/@best" in gsolve("train", *FLAGS, *flags)
    finally:
        newest = max((inside / "runs").glob("CartPole*"), key=lambda path: path.stat().st_mtime_ns)
        assert newest.name != run["id"]
        newest.rename(tmp_path / "done")


def test_list(gsolve, monkeypatch):
    entries = gsolve.json("list")
    names = [entry["name"] for entry in entries]
    assert {"CartPole-v1:ppo", "LunarLander-v3:ppo", "Ant-v5:ppo"} <= set(names)
    text = gsolve("list cartpole")
    assert text.rstrip().endswith("gsolve train CartPole-v1:ppo")
    assert "Taxi" not in text
    described = "\n      Balance a pole on a cart.\n"
    assert described not in text
    monkeypatch.setattr(out, "PIPED_WIDTH", 80)
    text = gsolve("list cartpole")
    assert max(map(len, text.splitlines())) <= 80
    assert f"  CartPole-v1:a2c\n  CartPole-v1:reinforce{described}" in text, "once for both"
    assert "  CartPole-v1:fast  (pqn)" in text
    assert "no config matches 'no-such-env'" in gsolve("list no-such-env", code=1)


def test_schema(tmp_path, gsolve):
    schema = gsolve.json("schema")
    assert "policy_lr" in schema["properties"]
    gsolve("schema -o", str(tmp_path / "s.json"))
    assert json.loads((tmp_path / "s.json").read_text()) == schema
    gsolve("schema -o", str(tmp_path / "new" / "s.json"))
    gsolve("schema -o", str(tmp_path / "s.json" / "s.json"), code=2)


def test_plot_one_and_several(inside, gsolve):
    picture = Path(gsolve("plot @last").strip())
    assert picture.name == "curves.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    told = gsolve.json("plot @last @last -o two.png")
    assert told["panels"] == ["returns"]
    assert Path("two.png").stat().st_size > 10_000
    told = gsolve.json("plot @last --metric entropy approx_kl -o m.svg")
    assert told["panels"] == ["train/opt/policy/entropy", "train/opt/ppo/approx_kl"]
    for flags, hint in (
        (["--metric", "entropie"], "Did you mean train/opt/policy/entropy"),
        (["--metric", "ep_rew"], "matches several metrics"),
        (["-o", "x.nonsense"], "cannot write the image"),
    ):
        assert hint in gsolve("plot @last", *flags, code=2)


def test_doctor(monkeypatch, gsolve):
    from gymnasium_solver.cli import doctor

    examined = doctor.examine()
    monkeypatch.setattr(doctor, "examine", lambda: examined)
    report = gsolve.json("doctor")
    assert report["healthy"]
    assert {c["name"] for c in report["engines"]} == {"envpool", "vector", "sync", "async"}
    assert all(c["ok"] for c in report["suites"] if c["name"] != "mujoco")
    assert report["devices"][0]["name"] == "cpu"
    assert "everything required works" in gsolve("doctor")
    examined["versions"].append(doctor.Check("torch", False, "missing: pip install torch"))
    assert "✗ missing: pip install torch" in gsolve("doctor", code=1)


def test_doctor_tells_a_missing_extra_with_the_command(monkeypatch):
    from gymnasium_solver.cli import doctor

    monkeypatch.setattr(doctor, "installed", lambda package: None)
    (mujoco,) = (check for check in doctor.extras() if check.name == "mujoco")
    assert not mujoco.ok
    assert not mujoco.needed
    assert 'pip install "gymnasium-solver[mujoco]"' in mujoco.text


def test_doctor_warns_about_packages_that_mujoco_4_breaks(monkeypatch):
    from gymnasium_solver.cli import doctor
    from gymnasium_solver.envs import env_bugs

    found = {"mujoco": "4.0.0", "dm_control": "1.0.50"}
    monkeypatch.setattr(env_bugs, "installed", found.get)
    monkeypatch.setattr(
        doctor, "check_env", lambda name, env_id, mode: doctor.Check(name, True, "")
    )
    check = doctor.examine()["extras"][-1]
    assert (check.name, check.ok, check.needed) == ("dm_control", False, False)
    assert check.text == "dm_control 1.0.50 fails with mujoco 4.0.0: pip install mujoco==3.17.0"
    found["mujoco"] = "3.17.0"
    assert "dm_control" not in {check.name for check in doctor.examine()["extras"]}
