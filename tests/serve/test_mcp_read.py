"""What the MCP server tells about runs, by a real client in this process."""

import base64
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from PIL import Image

import gymnasium_solver as gs
from gymnasium_solver.runs.episodes import list_episodes
from gymnasium_solver.runs.query import get_metrics, list_runs
from tests.serve.mcp_client import Caller, served, tiny_run, with_server

pytest.importorskip("mcp", reason="the extra mcp is not installed")


READING = {
    *("list_configs", "get_config", "list_runs", "get_run", "get_metrics", "get_logs", "diagnose"),
    *("compare_runs", "plot", "query", "wait_for", "get_experiment", "evaluate", "open_ui"),
}
# play may keep episodes in the run.
CHANGING = {
    *("start_training", "start_experiment", "stop_training", "edit_run", "play", "save_config"),
    "export",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one config and three of another."""
    root = tmp_path_factory.mktemp("mcp") / "runs"
    for seed in (1, 2, 3):
        tiny_run(root, seed=seed)
    for seed in (1, 2, 3):
        tiny_run(root, seed=seed, policy_lr=0.01).log_text("  50 %  val 21.0 ± 3.0\n the end")
    return root


def newest(root: Path) -> gs.Run:
    return gs.Run((root / "@last").resolve())


@served(max_env_steps=1000, total_env_steps=50_000, total_train_s=7200.0)
async def test_the_server_says_who_it_is_and_its_tools_are_few_and_annotated(call: Caller) -> None:
    tools = await call.client.list_tools()
    text = tools.model_dump_json(by_alias=True, exclude_none=True)
    assert len(text) / 4 < 3_000, "tokens, estimated by four characters each"
    by_name = {tool.name: tool for tool in tools.tools}
    assert by_name.keys() == {*READING, *CHANGING}
    for name, tool in by_name.items():
        is_change = name in CHANGING
        assert tool.annotations.read_only_hint is not is_change, name
        assert tool.description
        assert tool.output_schema is None
    assert by_name["stop_training"].annotations.destructive_hint is True
    assert call.client.server_info.name == "gymnasium-solver"
    assert call.client.server_info.version == gs.__version__
    for limit in ("at most 2 trainings", "1,000 env steps", "50,000 env steps and 2 h"):
        assert limit in call.client.instructions


@served(is_read_only=True)
async def test_a_read_only_server_has_no_tools_that_change_anything(call: Caller) -> None:
    names = {tool.name for tool in (await call.client.list_tools()).tools}
    assert names == {*READING, "play"}
    assert "no tool" in await call.error("start_training", config="CartPole-v1:ppo")


@served(allow_publish=True)
async def test_publishing_is_offered_only_if_the_person_allows_it(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []

    def output(*given: str, **_: Any) -> dict[str, str]:
        words.extend(given)
        return {"repo": "ann/x"}

    monkeypatch.setattr("gymnasium_solver.serve.mcp.training_tools.output_of", output)
    names = {tool.name for tool in (await call.client.list_tools()).tools}
    assert names == {*READING, *CHANGING, "publish_run"}
    assert (await call.data("publish_run", run="@last", repo="ann/x"))["repo"] == "ann/x"
    assert "--dry-run" in words
    assert "--public" not in words
    for bad in ("--help", "ann", "ann/x/y", "../x"):
        assert "repository" in await call.error("publish_run", run="@last", repo=bad)


@served()
async def test_configs_are_listed_resolved_and_explained(call: Caller) -> None:
    listed = await call.data("list_configs", filter="CartPole-v1:*", limit=3)
    assert len(listed["configs"]) == 3 < listed["total"]
    envs = await call.data("list_configs", kind="environments", filter="CartPole-v1")
    [cartpole] = [row for row in envs["environments"] if row["env"] == "CartPole-v1"]
    assert cartpole["random"] == pytest.approx(22.374)
    assert (cartpole["acts"], cartpole["solved_at"]) == ("Discrete(2)", 475)
    algorithms = (await call.data("list_configs", kind="algorithms"))["algorithms"]
    assert {"ppo", "td3", "dqn"} <= {row["algo"] for row in algorithms}
    assert all(row["about"] for row in algorithms)
    other = {"algo_id": "dqn", "buffer_size": 1000}
    shown = await call.data("get_config", config="CartPole-v1:ppo", overrides=other)
    assert shown["config"]["algo_id"] == "dqn"
    assert "clip_range" not in shown["config"]
    few = (await call.data("get_config", config="CartPole-v1:ppo"))["config"]
    every = (await call.data("get_config", config="CartPole-v1:ppo", all=True))["config"]
    assert few["policy_lr"] == every["policy_lr"]
    assert len(few) < 25 < len(every)
    assert "device" not in few
    fields = {"policy_lr": "lin_0.002", "hidden_dims": [4, 4]}
    shown = await call.data(
        "get_config", config="CartPole-v1:ppo", overrides=fields, explain=["hidden_d", "policy_lr"]
    )
    told = {row["field"]: row for row in shown["fields"]}
    assert told["hidden_dims"]["value"] == [4, 4]
    assert told["policy_lr"]["value"]["start"] == 0.002
    assert "layer" in told["hidden_dims"]["about"]
    text = await call.error("get_config", config="@last", overrides={"policy_rl": 1})
    assert "did you mean" in text.lower()


@served()
async def test_runs_are_filtered_sorted_and_described(call: Caller) -> None:
    all_runs = await call.data("list_runs")
    assert all_runs["total"] == 6
    some = await call.data("list_runs", filter="policy_lr=0.01 seed>1", sort="seed", limit=1)
    assert some["total"] == 2
    assert some["runs"][0]["seed"] == 3
    first, *_, last = (await call.data("list_runs", sort="val/roll/ep_rew/mean"))["runs"]
    assert first["best"] > last["best"]
    reverse = await call.data("list_runs", sort="-val/roll/ep_rew/mean", limit=1)
    assert reverse["runs"][0]["best"] == last["best"]
    assert "'nothing/x'" in await call.error("list_runs", sort="nothing/x")
    best = (await call.data("list_runs", sort="test", limit=1))["runs"][0]
    assert best["test"] == max(run["test"] for run in all_runs["runs"])
    sections = ["progress", "config", "checkpoints", "evals", "alerts", "hyperparams", "origin"]
    run = await call.data("get_run", run="@last", sections=sections)
    assert run["status"] == "finished"
    assert run["progress"]["env_steps"] == 128
    assert run["config"]["fields"]["seed"] == 3
    assert run["checkpoints"][-1]["last"] is True
    assert run["evals"][-1]["stage"] == "test"
    assert "policy_lr" in run["hyperparams"]["history"]
    assert run["origin"]["versions"]["gymnasium_solver"] == gs.__version__


@served()
async def test_metrics_by_name_range_statistic_and_around_a_step(call: Caller, root: Path) -> None:
    steps = [x for x, _ in get_metrics(newest(root))["train/opt/ppo/approx_kl"]]
    n = len(steps)
    listed = (await call.data("get_metrics", run="@last"))["metrics"]
    assert {"metric", "points", "last"} == set(listed[0])
    points = await call.data("get_metrics", run="@last", names=["rollout/ep_rew_mean"], limit=2)
    curve = points["curves"]["train/roll/ep_rew/mean"]
    assert curve["env_steps"][-1] == 128
    assert len(curve["values"]) == 2
    part = await call.data("get_metrics", run="@last", names=["approx_kl"], start=40, end=100)
    assert all(40 <= x <= 100 for x in part["curves"]["train/opt/ppo/approx_kl"]["env_steps"])
    stats = await call.data("get_metrics", run="@last", names=["approx_kl"], stat="summary")
    row = stats["summary"][0]
    assert row["min"] <= row["mean"] <= row["max"]
    assert row["points"] == n
    trend = await call.data("get_metrics", run="@last", names=["approx_kl"], stat="trend")
    assert trend["trend"][0]["points"] == n
    near = await call.data("get_metrics", run="@last", around=70)
    assert near["env_steps_before"] == max(x for x in steps if x <= 70)
    assert near["env_steps_after"] == min(x for x in steps if x > 70)
    assert "no metric" in await call.error("get_metrics", run="@last", names=["rewrad_xyz"])


@served()
async def test_logs_are_searched_by_any_expression_in_linear_time(call: Caller) -> None:
    found = await call.data("get_logs", run="@last", pattern="VAL +[0-9]")
    assert found["log"]
    assert all("val" in line for line in found["log"])
    new = await call.data("get_logs", run="@last", after=found["lines_in_all"] - 1, pattern="VAL")
    assert new["log"] == found["log"][-1:]
    with anyio.fail_after(10):  # nothing comes: the run has ended
        none = await call.data("get_logs", run="@last", after=10_000, seconds=50)
        assert none["log"] == []
        await call.data("get_logs", run="@last", pattern="(.*.*)*x{50}y")
    assert "pattern" in await call.error("get_logs", run="@last", pattern="(((")


@served()
async def test_a_diagnosis_has_problems_score_and_trends(call: Caller) -> None:
    found = await call.data("diagnose", run="@last")
    assert found["status"] == "finished"
    assert isinstance(found["problems"], list)
    assert found["score"]["kind"] == "held-out test"
    assert found["score"]["random_actions"] == pytest.approx(22.374)
    assert "train/opt/ppo/approx_kl" in found["latest"]


@served()
async def test_comparisons_group_seeds_and_take_a_baseline(call: Caller, root: Path) -> None:
    ids = [path.name for path in sorted(root.iterdir()) if path.name.startswith("CartPole")]
    scores = {run.id: run.test["mean"] for run in list_runs(root) if run.test is not None}
    found = await call.data("compare_runs", runs=ids)
    assert [len(group["runs"]) for group in found["groups"]] == [3, 3]
    assert found["verdicts"][0]["verdict"]
    assert "policy_lr" in found["fields_that_differ"]
    found = await call.data("compare_runs", runs=ids, margin="1000")
    assert "no difference that matters" in found["verdicts"][0]["verdict"]
    assert "a score such as 5" in await call.error("compare_runs", runs=ids, margin="x")
    for group in found["groups"]:
        run = group["runs"][0]
        best = max(score for other, score in scores.items() if other != run)
        beside = await call.data("compare_runs", runs=[run], baseline="best")
        others = {name for each in beside["groups"] for name in each["runs"]} - {run}
        assert [scores[name] for name in others] == [best]
    values = await call.data("compare_runs", runs=ids[:2], metric="approx_kl")
    assert {row["metric"] for row in values["runs"]} == {"train/opt/ppo/approx_kl"}


@served()
async def test_plots_and_frames_are_png(call: Caller) -> None:
    plot = await call.result("plot", runs=["@last"], metrics=["approx_kl", "loss/policy"])
    assert _picture(plot).width > 500
    given = {"x_axis": "wall_s", "title": "mine", "width": 600, "height": 400}
    one = await call.result("plot", runs=["@last"], metrics=["approx_kl"], **given)
    assert _picture(one).size == (600, 400)
    played = await call.result("play", target="@last/@last", episodes=2, frames=4)
    assert _picture(played).width > 500
    content = played.structured_content
    assert len(content["episodes"]) == 2
    assert len(content["first_episode"]) == 4
    assert content["first_episode"][-1]["t"] == content["episodes"][0]["steps"]
    assert "push" in content["first_episode"][0]["action"]
    chance = await call.data("play", target="CartPole-v1:ppo", mode="random", frames=0, seed=3)
    assert (chance["agent"], chance["seed"]) == ("random actions", 3)
    assert "expected test" in await call.error("play", target="@last", seed="tset")


@served()
async def test_what_takes_longer_than_a_client_waits_is_asked_for_again(call: Caller) -> None:
    asked = {"target": "@last/@last", "episodes": 3, "seed": 7}
    first = await call.data("evaluate", **asked, seconds=0)
    assert first["done"] is False
    found = await call.until(lambda now: now["done"], "evaluate", **asked, seconds=20)
    assert found["scores"]["greedy"]["episodes"] == 3
    assert "returns" not in found["scores"]["greedy"]  # of each episode: too much to read
    assert found["seed"] == 7
    played = await call.data("play", target="@last", frames=0, seconds=1)
    assert played["done"] is False
    assert (await call.until(lambda now: now["done"], "play", target="@last", frames=0))["episodes"]
    assert "no checkpoint" in await call.error("evaluate", target="@last/77")


@served()
async def test_runs_of_a_search_are_reached_by_every_tool(call: Caller, root: Path) -> None:
    search = root / "sweeps" / "tune-20260101-000000-0001"
    names = [f"{search.name}/trials/{number:04d}/seed0" for number in (0, 1)]
    for name, run in zip(names, ("seed=1", "seed=2"), strict=True):
        source = (await call.data("list_runs", filter=f"{run} policy_lr=0.01"))["runs"][0]["run"]
        shutil.copytree(root / source, root / "sweeps" / name, symlinks=True)
    for file in ("sweep.yaml", "base.yaml"):
        (search / file).touch()
    try:
        for tool in ("get_run", "diagnose", "get_metrics", "get_logs", "wait_for"):
            assert (await call.data(tool, run=names[1]))["run"] == names[1], tool
        [group] = (await call.data("compare_runs", runs=names))["groups"]
        assert group["runs"] == names
        by_metric = await call.data("compare_runs", runs=names, metric="approx_kl")
        assert [row["run"] for row in by_metric["runs"]] == names
        listed = await call.data("list_runs", filter="search=tune seed=2")
        assert [row["run"] for row in listed["runs"]] == names[1:]
        sql = "SELECT config->>'seed' AS seed, run FROM runs ORDER BY run"
        rows = (await call.data("query", sql=sql, filter="search=tune"))["rows"]
        assert [row["seed"] for row in rows] == ["1", "2"]
        edited = await call.data("edit_run", run=names[0], note="why it failed")
        assert (edited["run"], edited["note"]) == (names[0], "why it failed")
        assert "has no run 'trials/0009/seed0'" in await call.error(
            "play", target="tune/trials/0009/seed0"
        )
    finally:
        shutil.rmtree(root / "sweeps")
    assert "paths are refused" in await call.error("get_run", run=str(newest(root).path))


@served()
async def test_the_web_app_is_started_and_only_reads(call: Caller) -> None:
    import httpx

    pytest.importorskip("uvicorn", reason="the extra ui is not installed")
    pages = await call.data("open_ui", run="@last")
    assert pages["url"].rpartition("/")[2] == pages["inspector"].rpartition("/")[2]
    base = (await call.data("open_ui"))["url"]
    answer = await anyio.to_thread.run_sync(httpx.get, f"{base}api/session")
    assert answer.status_code == 200
    assert '"read_only":true' in answer.text.replace(" ", "")


@served(is_structured=False)
async def test_answers_are_not_sent_twice(call: Caller) -> None:
    result = await call.result("get_run", run="@last")
    assert result.structured_content is None
    assert "status: finished" in result.content[0].text


@pytest.mark.slow
def test_episodes_are_kept_in_the_format_of_the_inspector(root: Path) -> None:
    run = newest(root)

    async def story(call: Caller) -> None:
        wanted = {"target": f"{run.id}/@last", "episodes": 2, "frames": 4, "keep": True}
        played = await call.result("play", **wanted)
        assert _picture(played).width > 500
        content = played.structured_content
        kept = {episode.id: episode for episode in list_episodes(run)}
        assert set(content["kept"]) == set(kept)
        first = kept[content["kept"][0]]
        assert content["episodes"][0]["return"] == first.total
        assert len(content["first_episode"]) == 4
        assert "push" in content["first_episode"][0]["action"]
        again = await call.result("play", target=run.id, episode=first.id, frames=4)
        assert again.structured_content["first_episode"] == content["first_episode"]
        worst = await call.data("play", target=run.id, episode="worst", frames=0)
        assert worst["mean_return"] == min(episode.total or 0 for episode in kept.values())
        for name in ("../x", "nothing", "/etc/passwd"):
            assert "episode" in await call.error("play", target=run.id, episode=name)
        assert "no run" in await call.error(
            "play", target="CartPole-v1:ppo", mode="random", keep=True
        )

    async def reader(call: Caller) -> None:
        assert "read-only" in await call.error("play", target=run.id, keep=True)

    try:
        with_server(root, story)
        with_server(root, reader, is_read_only=True)
    finally:
        for episode in list_episodes(run):
            episode.delete()


def _picture(result: Any) -> Image.Image:
    assert not result.is_error, result.content[0].text
    [image] = [block for block in result.content if block.type == "image"]
    assert image.mime_type == "image/png"
    return Image.open(io.BytesIO(base64.b64decode(image.data)))


@served()
async def test_resources_and_prompts(call: Caller, root: Path) -> None:
    run = newest(root).id
    client = call.client
    listed = {str(one.uri) for one in (await client.list_resources()).resources}
    assert listed == {"gsolve://runs", "gsolve://guide"}
    for name, word in (("", "finished"), ("/config", "policy_lr"), ("/report", "CartPole"),
                       ("/log", "val"), ("/metrics", "env_steps,epoch")):  # fmt: skip
        content = (await client.read_resource(f"gsolve://runs/{run}{name}")).contents[0]
        assert word in content.text, name
    for bad in ("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "nothing", "%2Fetc%2Fpasswd"):
        with pytest.raises(Exception, match=r"(?i)run|unknown|not found"):
            await client.read_resource(f"gsolve://runs/{bad}/config")
    prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    assert prompts == {"debug_run", "tune_config", "beat_score"}
    prompt = await client.get_prompt("debug_run", {"run": run})
    assert run in prompt.messages[0].content.text
    for name in ("tune_config", "beat_score"):
        given = {"config": "CartPole-v1:ppo", "score": "490"}
        asked = {key: given[key] for key in ("config", "score")[: 1 + (name == "beat_score")]}
        text = (await client.get_prompt(name, asked)).messages[0].content.text
        assert all(word in text for word in ("start_experiment", "five", "save_config")), name


LIGHT = """
import sys, anyio
from pathlib import Path
from mcp import Client
from gymnasium_solver.serve.mcp.server import build_server
from gymnasium_solver.serve.mcp.allowed import Settings

async def main():
    async with Client(build_server(Settings(Path(sys.argv[1])))) as client:
        for tool in ("get_run", "diagnose", "get_metrics"):
            assert not (await client.call_tool(tool, {"run": "@last"})).is_error
        assert not (await client.call_tool("compare_runs", {"runs": ["@last"]})).is_error

anyio.run(main)
print([name for name in ("torch", "gymnasium", "envpool") if name in sys.modules])
"""


def test_the_server_imports_neither_torch_nor_environments(root: Path) -> None:
    words = [sys.executable, "-c", LIGHT, str(root)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
