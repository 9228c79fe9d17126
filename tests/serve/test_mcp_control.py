"""Trainings driven by a real client: over stdio, over HTTP, by two servers, through a kill."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.query import get_run, list_runs
from gymnasium_solver.runs.run import Run, is_alive_here
from tests.serve.made_runs import made_solve
from tests.serve.mcp_client import (
    ENDLESS,
    GSOLVE,
    TINY,
    TOKEN,
    Caller,
    http_server,
    over_http,
    over_stdio,
    served,
    tiny_run,
)

pytest.importorskip("mcp", reason="the extra mcp is not installed")

WORDS = [*GSOLVE, "mcp"]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder of runs; whatever still trains in it at the end is killed."""
    root = tmp_path / "runs"
    yield root
    for found in list_runs(root):
        meta = Run(Path(found.path)).meta()
        if is_alive_here(meta):
            os.kill(meta["pid"], signal.SIGKILL)


def test_a_training_outlives_its_server_and_another_one_takes_over(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first server is killed mid-training. The second counts the run as part of its budget,
    edits it live, diagnoses, stops, resumes and compares it; all changes are in one log."""
    baseline = tiny_run(root, seed=1).id
    ids: list[str] = []
    log = root / ".mcp-log.jsonl"

    async def start(call: Caller) -> None:
        fields = ENDLESS | {"policy_lr": 0.001}
        started = await call.data(
            "start_training", config="CartPole-v1:ppo", overrides=fields, seed=4, tags=["story"]
        )
        ids.append(started["run"])
        os.kill(json.loads(log.read_text().splitlines()[0])["who"]["server_pid"], signal.SIGKILL)
        with pytest.raises(Exception):  # noqa: B017, PT011  (the connection is gone)
            with anyio.fail_after(10):
                await call.data("list_runs")

    with suppress(BaseExceptionGroup):  # the client may also report the end of its server here
        over_stdio(root, start)
    run = ids[0]
    before = get_run(run, root).env_steps

    async def take_over(call: Caller) -> None:
        waited = await call.data("wait_for", run=run, env_steps=before + 200, seconds=50)
        assert waited["done"] is True
        text = await call.error("start_training", config="CartPole-v1:ppo", overrides=TINY)
        assert "at most 1 at once" in text
        assert run in text
        edited = await call.data("edit_run", run=run, set={"policy_lr": 0.0005}, note="slower")
        assert edited["set"]["applied"] is True
        assert (edited["note"], edited["tags"]) == ("slower", ["story"])
        assert (await call.data("diagnose", run=run))["status"] == "running"
        stopped = await call.data("stop_training", run=run[-4:])
        assert stopped["status"] == "interrupted"
        assert stopped["progress"]["env_steps"] > before
        assert "not running" in await call.error("stop_training", run=run)
        budget = stopped["progress"]["env_steps"] + 64
        again = await call.data("start_training", resume=run, max_env_steps=budget)
        assert again["run"] == run
        assert (await call.data("wait_for", run=run, seconds=50))["status"] == "finished"
        history = await call.data("get_run", run=run, sections=["hyperparams", "progress"])
        [edit] = history["hyperparams"]["edits"]
        assert (edit["changed"]["policy_lr"], edit["source"]) == ([0.001, 0.0005], "mcp")
        assert history["progress"]["env_steps"] == budget
        found = await call.data("compare_runs", runs=[run], baseline=baseline)
        assert "cannot tell" in found["verdicts"][0]["verdict"]

    over_stdio(root, take_over, "--max-trainings", "1")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    changes = [entry for entry in entries if "tool" in entry]
    start_, edit, stop = "start_training", "edit_run", "stop_training"
    assert [one["tool"] for one in changes] == [start_, start_, edit, stop, stop, start_]
    assert all(one["who"]["transport"] == "stdio" for one in changes)
    assert sum("error" in entry for entry in entries) == 2
    assert main(["mcp", "--log", "--runs-dir", str(root)]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in (run, "edit_run", "slower", "not running"))


@pytest.mark.slow
@served(max_env_steps=256)
async def test_budgets_are_enforced(call: Caller) -> None:
    text = await call.error("start_training", config="CartPole-v1:ppo", max_env_steps=5000)
    assert "budget of 256" in text
    fields = {k: v for k, v in ENDLESS.items() if k != "max_env_steps"}
    started = await call.data("start_training", config="CartPole-v1:ppo", overrides=fields)
    assert "lowered to 256" in started["notes"][0]
    ended = await call.data("wait_for", run=started["run"], seconds=50)
    assert ended["status"] == "finished"
    assert ended["progress"]["env_steps"] == 256
    text = await call.error("edit_run", run=started["run"], set={"max_env_steps": 10**6})
    assert "budget of 256" in text


@pytest.mark.slow
@served(max_wall_s=25.0)  # time to start on a busy machine
async def test_a_training_ends_after_the_allowed_time(call: Caller) -> None:
    started = await call.data("start_training", config="CartPole-v1:ppo", overrides=ENDLESS)
    ended = await call.data("wait_for", run=started["run"], seconds=50)
    assert ended["status"] == "interrupted"
    assert "SIGTERM" in ended["stopped"]


@served(max_trainings=1, total_env_steps=300, total_train_s=3600.0)
async def test_an_experiment_runs_within_the_budget_and_is_compared(call: Caller) -> None:
    given = {"configs": ["CartPole-v1:ppo"], "overrides": TINY, "name": "mine"}
    text = await call.error("start_experiment", **given, seeds=3)
    assert "3 x 128 env steps are over the 300 that are left" in text
    assert "up to 100" in text
    started = await call.data("start_experiment", **given, seeds=2)
    assert started["id"] == "mine"
    assert started["left_of_the_budget"] == {"env_steps": 300 - 2 * 128, "hours": 0}
    one = {"config": "CartPole-v1:ppo", "overrides": TINY, "max_env_steps": 44}
    assert "mine" in await call.error("start_training", **one)
    first = await call.until(lambda now: now["done"], "wait_for", run="mine", until="evaluation")
    assert first["env_steps"] >= 128
    waited = await call.until(lambda now: now["done"], "wait_for", run="mine", seconds=50)
    assert (waited["status"], waited["env_steps"]) == ("finished", 256)
    found = await call.data("get_experiment", id="min")
    assert (found["status"], found["running"]) == ("finished", False)
    assert "1 x 45 env steps are over the 44" in await call.error(
        "start_training", **one | {"max_env_steps": 45}
    )
    assert [row["status"] for row in found["runs"]] == ["finished", "finished"]
    assert len(found["groups"][0]["runs"]) == 2
    assert (await call.data("get_experiment"))["experiments"][0]["id"] == "mine"
    assert "not running" in await call.error("stop_training", run="mine")
    text = await call.error("start_experiment", configs=["CartPole-v1:ppo"], name="mine")
    assert "exists already" in text


@served(max_env_steps=40_000)
async def test_a_solve_is_started_within_the_budget_and_told(
    call: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(argv: list[str], folder: Path, **how: Any) -> None:
        started.append(argv)
        raise RunError("not in a test")

    monkeypatch.setattr(local, "start", start)
    given = {"configs": ["Acrobot-v1"], "solve": True, "name": "mine"}
    assert "not in a test" in await call.error("start_experiment", **given)
    words = started[0][started[0].index("solve") :]
    assert words[:4] == ["solve", "Acrobot-v1", "--name", "mine"]
    assert words[words.index("--max-env-steps") + 1] == "40000"
    assert "give one" in await call.error("start_experiment", **given, search={"gamma": ""})
    made_solve(root)
    for tool, about in (("get_experiment", {"id": "solved"}), ("wait_for", {"run": "solved"})):
        told = (await call.data(tool, **about))["solve"]
        assert told["verdict"]["kind"] == "solved"
        assert told["lines"][1] == "choice: DQN; contrast PPO"


@pytest.mark.slow
@served()
async def test_a_search_finds_hyperparameters(
    call: Caller, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="the extra sweep is not installed")
    monkeypatch.setenv("GSOLVE_CONFIGS", str(root.parent / "configs"))
    ranges = {"policy_lr": "log:1e-4..1e-2", "n_epochs": "1,2"}
    given = {"configs": ["CartPole-v1:ppo"], "search": ranges, "trials": 2, "overrides": TINY}
    started = await call.data("start_experiment", **given, name="found")
    assert started["id"] == "found"
    waited = await call.until(lambda now: now["done"], "wait_for", run="found", seconds=50)
    assert (waited["status"], waited["trials_done"]) == ("finished", 2)
    assert set(waited["params"]) == set(ranges)
    trial = await call.data("get_run", run=f"{started['id']}/trials/0001/seed0")
    assert trial["status"] == "finished"
    found = await call.data("get_experiment", id="found")
    assert found["status"] == "finished"
    kept = await call.data("save_config", search="found", variant="ppo_found", trial=1)
    assert kept["config"] == "CartPole-v1:ppo_found"
    shown = (await call.data("get_config", config=kept["config"], all=True))["config"]
    assert shown["n_epochs"] in (1, 2)
    assert (await call.data("get_config", config="CartPole-v1:ppo"))["config"]
    assert "already" in await call.error("save_config", search="found", variant="ppo_found")
    assert {row["number"] for row in found["best_trials"]} == {0, 1}
    assert set(found["result"]["params"]) == set(ranges)
    assert (await call.data("get_experiment"))["searches"] == [started["id"]]
    bad = {"policy_lr": "log:nothing"}
    assert await call.error("start_experiment", configs=["CartPole-v1:ppo"], search=bad)
    assert [p.name for p in (root / ".mcp-jobs").iterdir()] == ["found"]


@pytest.mark.slow
@served(max_trainings=1)
async def test_an_experiment_is_stopped_with_its_runs(call: Caller) -> None:
    started = await call.data(
        "start_experiment", configs=["CartPole-v1:ppo"], seeds=3, overrides=ENDLESS
    )
    name = started["id"]
    await call.until(lambda now: "1 running" in now["counts"], "get_experiment", id=name)
    assert (await call.data("stop_training", run=name))["status"] == "stopped"
    after = await call.data("get_experiment", id=name)
    assert {row["status"] for row in after["runs"]} <= {"interrupted", "waiting"}


@pytest.mark.slow
@served(total_env_steps=200)
async def test_trainings_share_a_total_and_track_what_is_allowed(call: Caller, root: Path) -> None:
    fields = {k: v for k, v in TINY.items() if k != "max_env_steps"}
    given = {"config": "CartPole-v1:ppo", "overrides": fields}
    first = await call.data("start_training", **given, max_env_steps=128, track="csv")
    assert first["left_of_the_budget"] == {"env_steps": 72}
    second = await call.data("start_training", **given)
    assert "lowered to 72" in second["notes"][0]
    assert "used up" in await call.error("start_training", **given)
    text = await call.error("edit_run", run=second["run"], set={"max_env_steps": 128})
    assert "used up" in text or "over the 0" in text
    for run in (first["run"], second["run"]):
        await call.until(lambda now: now["done"], "wait_for", run=run, seconds=50)
    assert (root / first["run"] / "trackers").is_dir()
    assert not (root / second["run"] / "trackers").exists()
    made = await call.until(lambda now: now["done"], "export", target=first["run"])
    assert Path(made["path"]).is_file()


@served()
async def test_trackers_that_send_need_leave(call: Caller) -> None:
    asked = {"config": "CartPole-v1:ppo"}
    assert "--allow-publish" in await call.error("start_training", **asked, track="wandb")
    assert "is no tracker" in await call.error("start_training", **asked, track="wnadb")


@served()
async def test_what_fails_to_start_leaves_nothing_behind(call: Caller, root: Path) -> None:
    text = await call.error("start_training", config="CartPole-v1:ppo", overrides={"gama": 1})
    assert "gamma" in text
    assert [path.name for path in root.iterdir() if path.is_dir()] == []


def test_http_reads_without_a_token_and_writes_with_it(root: Path) -> None:
    run = tiny_run(root, seed=1).id

    async def read(call: Caller) -> None:
        assert (await call.data("list_runs"))["total"] == 1
        assert "bearer token" in await call.error("edit_run", run=run, add_tags=["x"])

    async def write(call: Caller) -> None:
        assert (await call.data("edit_run", run=run, add_tags=["x"]))["tags"] == ["x"]

    with http_server(root, "--allow-write") as address:
        over_http(address, read)
        over_http(address, write, TOKEN)
        _check_headers(address)

    async def read_only(call: Caller) -> None:
        names = {tool.name for tool in (await call.client.list_tools()).tools}
        assert "edit_run" not in names

    with http_server(root) as address:
        over_http(address, read_only)


def _check_headers(address: str) -> None:
    import httpx

    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    for headers, status in (
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
    ):
        answer = httpx.post(address, json=body, headers=accept | headers, timeout=20)
        assert answer.status_code == status, (headers, answer.status_code, answer.text[:200])


@pytest.mark.slow
def test_other_machines_always_need_the_token(root: Path) -> None:
    import httpx

    with http_server(root, "--host", "0.0.0.0", "--allow-host", "127.0.0.1") as address:
        local = address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.post(local, json={}, timeout=20).status_code == 401
        wrong = {"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}
        assert httpx.post(local, json={}, headers=wrong, timeout=20).status_code == 421

        async def story(call: Caller) -> None:
            assert (await call.data("list_runs"))["total"] == 0

        over_http(local, story, TOKEN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-trainings", "0"], "at least 1"),
        (["--max-env-steps", "many"], "1e6"),
        (["--max-wall-time", "soon"], "90s"),
        (["--total-env-steps", "0"], "1e6"),
        (["--http", "--port", "99999"], "cannot listen"),
        (["--htpp"], "--http"),
    ],
)
def test_wrong_flags_are_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *words]) == 2
    text = capsys.readouterr().err
    assert said in text
    assert len(text.splitlines()) == 1
