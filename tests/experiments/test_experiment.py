"""Experiments: what a command line means, and the folder that names the runs."""

import json
from pathlib import Path

import pytest

from gymnasium_solver.cli.flags import read_fields
from gymnasium_solver.cli.main import main
from gymnasium_solver.cli.train import is_many
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError, TrustError
from gymnasium_solver.experiments.benchmark import read_ablations
from gymnasium_solver.experiments.experiment import (
    CONFIGS,
    FILE,
    Progress,
    counts,
    create,
    experiment_ids,
    find,
    load,
    open_experiment,
    status_of,
)
from gymnasium_solver.experiments.groups import experiment_groups, group_runs
from gymnasium_solver.experiments.train_many import expand, parse_seeds
from gymnasium_solver.training.prepare import load_config
from tests.experiments.fake_runs import finished

PPO = load_config("CartPole-v1:ppo", overrides={"max_env_steps": 4000})
DQN = load_config("CartPole-v1:dqn")


@pytest.mark.parametrize(
    ("text", "first", "seeds"),
    [("3", None, [1, 2, 3]), ("2", 7, [7, 8]), ("1,2,7", None, [1, 2, 7]), ("9,", None, [9]),
     ("3..5", None, [3, 4, 5]), (None, None, [1]), (None, 4, [4])],
)  # fmt: skip
def test_seeds(text: str | None, first: int | None, seeds: list[int]) -> None:
    assert parse_seeds(text, first) == seeds


@pytest.mark.parametrize("text", ["0", "a", "1,1", "5..3", "-1", "1.5", "99999"])
def test_wrong_seeds(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text, None)


def test_targets() -> None:
    assert expand(["CartPole-v1:ppo,dqn"]) == ["CartPole-v1:ppo", "CartPole-v1:dqn"]
    found = expand(["CartPole-v1:*"])
    assert {"CartPole-v1:ppo", "CartPole-v1:dqn"} <= set(found)
    with pytest.raises(ConfigError, match="no config matches"):
        expand(["Nothing:*"])
    for words, expected in (("a b", True), ("a:x,y", True), ("a --seeds 5", True), ("a", False)):
        assert is_many(read_fields("train", words.split())) == expected


def test_the_folder(tmp_path: Path) -> None:
    made = create([("CartPole-v1:ppo", PPO), ("mine", DQN)], [1, 2], tmp_path, command=["x"])
    assert load(made.path) == made
    assert [(m.group, m.seed) for m in made.members] == [
        ("CartPole-v1:ppo", 1), ("CartPole-v1:ppo", 2), ("mine", 1), ("mine", 2)
    ]  # fmt: skip
    assert len({member.run for member in made.members}) == 4
    config = load_config(str(made.path / CONFIGS / made.members[0].config))
    assert config_dict(config) == config_dict(PPO.replace(seed=None))
    task = made.task(made.members[1])
    assert task.folder == tmp_path / made.members[1].run
    assert "--seed" in task.argv
    assert task.argv[task.argv.index("--seed") + 1] == "2"
    assert experiment_ids(tmp_path) == [made.id]
    for ref in (made.id, made.id[:20], str(made.path), f"experiments/{made.id}"):
        assert find(ref, tmp_path) == made.path
    assert open_experiment("@last", tmp_path) == made
    with pytest.raises(RunError, match="there is no experiment 'nope'"):
        open_experiment("nope", tmp_path)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given twice: a"):
        create([("a", PPO), ("a", DQN)], [1], tmp_path)
    with pytest.raises(ConfigError, match="at least one config"):
        create([], [1], tmp_path)
    with pytest.raises(RunError, match="cannot name an experiment"):
        create([("a", PPO)], [1], tmp_path, name="../x")
    create([("a", PPO)], [1], tmp_path, name="x")
    with pytest.raises(RunError, match="exists already"):
        create([("a", PPO)], [1], tmp_path, name="x")


def test_a_forged_file_cannot_reach_outside(tmp_path: Path) -> None:
    made = create([("a", PPO)], [1], tmp_path)
    content, _ = read_file(made.path / FILE)
    content["runs"][0]["run"] = "../../etc"
    (made.path / FILE).write_text(dump_yaml(content))
    with pytest.raises(RunError, match="is not the name of a file"):
        load(made.path)
    (made.path / FILE).write_text("runs: 3\n")
    with pytest.raises(RunError, match="lacks fields"):
        load(made.path)


def test_code_of_a_stranger_is_not_imported(tmp_path: Path) -> None:
    made = create([("a", PPO)], [1], tmp_path)
    made.check_trust(False)
    file = made.path / CONFIGS / made.members[0].config
    file.write_text(file.read_text().replace("plugins: []", "plugins: [evil]"))
    with pytest.raises(TrustError, match="evil"):
        load(made.path).check_trust(False)
    load(made.path).check_trust(True)


def test_progress_and_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = create([("a", PPO), ("b", DQN)], [1, 2], tmp_path, name="e")
    assert status_of(Progress(made).rows()) == "incomplete"
    for member, score in zip(made.members, (10.0, 20.0, 30.0), strict=False):
        finished(tmp_path, member.run, score, member.seed)
    progress = Progress(made)
    assert counts(progress.rows()) == "3 of 4 finished"
    assert [(g.label, g.scores) for g in experiment_groups(made)] == [
        ("a", [10.0, 20.0]), ("b", [30.0])
    ]  # fmt: skip
    assert [g.label for g in group_runs(["e"], tmp_path)] == ["a", "b"]
    assert [g.scores for g in group_runs(["all=e"], tmp_path)] == [[20.0, 30.0]], "one per seed"
    assert main(["experiments", "e", "--json", "--runs-dir", str(tmp_path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in shown["runs"]] == ["finished"] * 3 + ["waiting"]
    assert main(["compare", "e", "--runs-dir", str(tmp_path)]) == 0
    assert "b against a: cannot tell: 1 seed" in capsys.readouterr().out


def test_the_page_of_an_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["gsolve", "train", "CartPole-v1:ppo", "CartPole-v1:dqn", "--seeds", "3"]
    made = create([("a", PPO), ("b", DQN)], [1, 2, 3], tmp_path, name="e", command=command)
    git = {"commit": "c0ffee" * 7, "dirty": False}
    for i, member in enumerate(made.members):
        test = {"mean": 10.5 + 100 * (i // 3) + i, "stderr": 0.5, "episodes": 9, "greedy": True}
        run = finished(tmp_path, member.run, 0.0, member.seed, test=test, git=git)
        for step in (100, 200):
            run.log_metrics({"env_steps": step, "epoch": 1, "val/roll/ep_rew/mean": 5.0 * i})
    run.update_meta(status="failed", stop_reason="error", stop_detail="the pole <broke>", test=None)
    assert main(["report", "e", "--runs-dir", str(tmp_path)]) == 0
    page, text = (Path(line) for line in capsys.readouterr().out.split())
    for told in (page.read_text(), text.read_text()):
        for fact in (" ".join(command), "c0ffee" * 7, "12.5 ± 0.5", "114.5 ± 0.5", "Welch",
                     "at least 3", "consistency: 1", "the pole", "5 of 6 finished"):  # fmt: skip
            assert fact in told, fact
    html = page.read_text()
    assert "the pole &lt;broke&gt;" in html
    assert "<svg" in html
    assert "http" not in html.replace("http://www.w3.org", ""), "nothing is loaded"
    other = tmp_path / "out" / "study.html"
    assert main(["report", "e", "-o", str(other), "--runs-dir", str(tmp_path)]) == 0
    assert other.read_text() == html


def test_ablations(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("- {name: wide, hidden_dims: [64]}\n- {gae_lambda: 1.0, clip_range: null}\n")
    assert read_ablations(file) == {
        "wide": {"hidden_dims": [64]},
        "gae_lambda=1.0, clip_range=null": {"gae_lambda": 1.0, "clip_range": None},
    }
    file.write_text("wide: {hidden_dims: [64]}\n")
    assert read_ablations(file) == {"wide": {"hidden_dims": [64]}}
    for wrong in ("3", "[]", "- 3", "- {name: x}", "- {a: 1}\n- {a: 1}", "x: 3"):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=r"a\.yaml"):
            read_ablations(file)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["CartPole-v1:ppo", "--seeds", "2", "--seed", "1"], "--seed is for a single run"),
        (["CartPole-v1:ppo", "--seeds", "2", "--run-name", "x"], "--run-name is for a single run"),
        (["--seeds", "2"], "no config given"),
        (["CartPole-v1:ppo", "--seeds", "2", "--polcy-lr", "1"], "unknown flag '--polcy-lr'"),
        (["CartPole-v1:ppo", "nope", "--seeds", "2"], "no config named 'nope'"),
    ],
)
def test_wrong_command_lines(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--runs-dir", str(tmp_path)]) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "experiments").exists()


def test_an_experiment_is_continued_as_it_was_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create([("a", PPO)], [1], tmp_path, name="mine")
    where = ["--runs-dir", str(tmp_path)]
    for words in (["--seeds", "3"], ["--policy-lr", "0.1"], ["CartPole-v1:ppo"]):
        assert main(["train", "--resume", "mine", *words, *where]) == 2
        assert "continued as it was started" in capsys.readouterr().err
