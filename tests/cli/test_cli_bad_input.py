"""Bad input and paths that cannot be: one line that names what was given, what is expected and the
fix; and nothing is left behind."""

from pathlib import Path

import pytest

from gymnasium_solver.paths import PathError, output_file, user_path
from gymnasium_solver.runs.run import Run, runs_root
from tests.cli.conftest import Gsolve

LONG = "a" * 300
TRAIN = "train CartPole-v1:ppo --max-env-steps 64 -q"


@pytest.fixture(autouse=True)
def _files(here: Path, tmp_path: Path) -> None:
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 1}
    with Run.create("env_id: CartPole-v1\nalgo_id: ppo\n", identity, tmp_path / "runs") as run:
        run.log_metrics({"env_steps": 1, "epoch": 1, "wall_s": 1.0, "train/roll/ep_rew/mean": 1})
    (tmp_path / "a_file").write_text("")
    (tmp_path / "runs" / "not_a_run").mkdir(parents=True)
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "ppo.yml").write_text(
        "CartPole-v1:\n  n_envs: 4\n  n_timesteps: 1e5\n  policy: MlpPolicy\n"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("runs --runs-dir a_file", "the folder of the runs, a_file, is a file: give a folder"),
        ("train CartPole-v1:ppo --runs-dir a_file", "a_file, is a file"),
        ("ui --runs-dir a_file", "a_file, is a file"),
        ("eval runs/not_a_run", "'runs/not_a_run' is not a run folder: it has no meta.json"),
        ("train --resume runs/not_a_run", "is not a run folder: it has no meta.json"),
        ("train empty.yaml", "expected a block of `field: value` lines, but it is empty"),
        ("benchmark empty.yaml", "expected `key: value` lines, but it is empty"),
        ("net CartPole-v1:ppo --out a_file/net.svg", "cannot write the picture a_file/net.svg"),
        ("schema -o a_file/schema.json", "cannot write the schema a_file/schema.json"),
        ("import-config ppo.yml --out a_file/my.yaml", "cannot write the config a_file/my.yaml"),
        ("import-config nope.yml", "nope.yml cannot be read: No such file or directory"),
        ("baselines cartpole --measure --out a_file/b.json", "cannot write the baselines"),
        ("runs --limit abc", "--limit abc: expected a whole number of at least 0. See gsolve"),
        ("hub foo", "foo: expected one of push, pull, list. See gsolve hub --help"),
        ("export @last --format foo", "--format foo: expected one of onnx, torch, c"),
        ("sweep CartPole-v1:ppo --trials abc", "--trials abc: expected a whole number"),
        ("sweep CartPole-v1:ppo --sampler foo", "sampler: got 'foo', expected one of 'auto'"),
        ("jobs foo", "gsolve jobs: foo: expected one of list, logs, cancel"),
        ("set", "the following arguments are required: RUN. See gsolve set --help"),
        ("tag", "the following arguments are required: RUN. See gsolve tag --help"),
    ],
)
def test_bad_input_gets_one_line(command: str, message: str, gsolve: Gsolve) -> None:
    error = gsolve(command, code=2)
    assert message in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) <= 2  # those of a config name it first


def test_words_may_follow_a_flag(gsolve: Gsolve) -> None:
    """argparse alone refuses `set RUN --at 5 FIELD=VALUE`: the flag ends the list of words."""
    assert "there is no run 'nope'" in gsolve("set nope --at 5 policy_lr=1e-4", code=2)
    gsolve("runs --limit 5 CartPole --json seed=1")
    assert "unknown flag '--nope'" in gsolve("set nope --at 5 policy_lr=1 --nope 3", code=2)


WRONG = (
    *(f"plot @last -o {name}" for name in (
        "a_file/a.png", f"{LONG}.png", f"{LONG}/a.png", "~nope/a.png", ".", "a.xyz", "a\0b.png")),
    *(f"schema -o {name}" for name in ("a_file/a", LONG, "~nope/a", "runs")),
    *(f"run {ref}" for ref in (
        "~nope/x", LONG, f"/{LONG}", f"{LONG}/{LONG}/@best", "a\0b", "@last/" + "9" * 5000)),
    *(f"run @last --csv {name}" for name in ("a_file/a.csv", LONG, "~nope/a")),
    *(f"report @last -o {name}" for name in (
        "a\0b.html", "a_file/a.md", f"{LONG}.html", "~nope/a.html")),
    *(f"{TRAIN} {flag}" for flag in (
        f"--runs-dir {LONG}", "--runs-dir a_file", "--runs-dir ~nope/x", "--run-dir ~nope/x",
        f"--run-dir {LONG}", f"--run-name {LONG}", "--run-dir a_file", "--init-from-run ~nope/x",
        f"--init-from-run {LONG}")),
    f"plot {LONG}", "run @last --log -1", "envs show CartPole-v1 --frame ~nope/a.png",
    f"check {LONG}", "runs --limit -1", "runs --runs-dir ~nope/x", "eval ~nope/x",
    f"eval @last/{'9' * 5000}", f"eval {LONG} --runs-dir {LONG}", "roms import ~nope/x",
    f"roms import {LONG}", "train --resume ~nope/x", f"train {LONG} --runs-dir {LONG}",
    "show ~nope/a.yaml",
)  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_one_line_and_exit_2(line: str, tmp_path: Path, gsolve: Gsolve) -> None:
    if line.startswith("roms"):
        pytest.importorskip("stable_retro")
    before = sorted(tmp_path.rglob("*"))
    error = gsolve(line, code=2)
    assert error.startswith(f"gsolve {line.split()[0]}: ")
    assert error.count("\n") <= 3
    assert sorted(tmp_path.rglob("*")) == before


def test_eval_refuses_numbers_that_are_no_seed(gsolve: Gsolve) -> None:
    for seed in ("²", "٣", "9" * 5000, "-1", str(2**31)):
        assert "Traceback" not in gsolve("eval @last --seed", seed, code=2)


def test_home_is_expanded(gsolve: Gsolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_root("~/runs") == tmp_path / "runs"
    assert user_path("a~b") == Path("a~b")
    assert output_file("~/a.png", "it") == tmp_path / "a.png"
    with pytest.raises(PathError, match="no user 'nope'"):
        user_path("~nope/x")
    gsolve("plot @last -o ~/new/a.png")
    assert (tmp_path / "new" / "a.png").is_file()
