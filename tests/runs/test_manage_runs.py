"""Tags, notes, filters, and removing: nothing is lost without a yes, nothing hides other runs."""

from pathlib import Path

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import list_checkpoints, save_checkpoint
from gymnasium_solver.runs.manage import Labels, change_tags, read_labels, set_note
from gymnasium_solver.runs.query import list_runs
from gymnasium_solver.runs.resolve import run_ids
from gymnasium_solver.runs.run import LAST_RUN, Run


def make_run(root: Path, seed: int = 1, test: float | None = None, lr: float = 0.001) -> Run:
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": seed}
    run = Run.create(f"env_id: CartPole-v1\npolicy_lr: {lr}\nflag: true\n", identity, root)
    fields: dict[str, object] = {"status": "finished", "wall_s": 2.0, "env_steps": 100 * seed}
    if test is not None:
        fields["test"] = {"mean": test, "stderr": 1.0, "episodes": 100, "greedy": True}
    run.update_meta(**fields)
    return run


def test_tags_and_note(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert read_labels(run) == Labels()
    change_tags(run, ["paper", "base", "paper"])
    set_note(run, "  a first try ")
    change_tags(run, remove=["base"])
    assert read_labels(run) == Labels(("paper",), "a first try")
    (summary,) = list_runs(tmp_path)
    assert (summary.tags, summary.note) == (["paper"], "a first try")


@pytest.mark.parametrize("tag", ["", "two words", "-x", "a\n", "x" * 65, "\x1b[31m"])
def test_odd_tags_are_refused(tmp_path: Path, tag: str) -> None:
    run = make_run(tmp_path)
    with pytest.raises(RunError, match="is not a tag"):
        change_tags(run, [tag])
    assert not run.labels_path.exists()


def test_a_missing_tag_and_a_long_note_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(RunError, match="has no tag nope"):
        change_tags(run, remove=["nope"])
    with pytest.raises(RunError, match="at most 10,000"):
        set_note(run, "x" * 10_001)


@pytest.mark.parametrize("text", ["{", "[]", '{"tags": 3}', '{"tags": [1]}', '{"note": []}'])
def test_damaged_labels_do_not_hide_other_runs(tmp_path: Path, text: str) -> None:
    run, other = make_run(tmp_path), make_run(tmp_path, 2)
    run.labels_path.write_text(text)
    statuses = {summary.id: summary.status for summary in list_runs(tmp_path)}
    assert statuses == {run.id: "broken", other.id: "finished"}


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (["test>400"], [3]),
        (["test<=300"], [2]),
        (["seed!=2"], [1, 3]),
        (["seed=2", "cartpole"], [2]),
        (["policy_lr<0.01"], [1, 2]),
        (["policy_lr=1e-3"], [1, 2]),
        (["flag=true"], [1, 2, 3]),
        (["tag=x"], [1]),
        (["x"], [1]),
        (["variant=dqn"], []),
        (["note=1"], []),
    ],
)
def test_filters(tmp_path: Path, words: list[str], seeds: list[int]) -> None:
    for seed, test, lr in ((1, None, 0.001), (2, 300.0, 0.001), (3, 450.0, 0.1)):
        run = make_run(tmp_path, seed, test, lr)
        if seed == 1:
            change_tags(run, ["x"])
    assert sorted(run.seed or 0 for run in list_runs(tmp_path, words)) == seeds


@pytest.mark.parametrize("word", ["test>", "test>high"])
def test_bad_conditions_are_told(tmp_path: Path, word: str) -> None:
    with pytest.raises(RunError, match=r"no value|needs a number"):
        list_runs(tmp_path, [word])


def test_sorting(tmp_path: Path) -> None:
    for seed, test, lr in ((1, None, 0.5), (2, 300.0, 0.001), (3, 450.0, 0.1)):
        make_run(tmp_path, seed, test, lr)

    def order(name: str) -> list[int | None]:
        return [run.seed for run in list_runs(tmp_path, sort_by=name)]

    assert order("test") == [3, 2, 1]  # without a test last
    assert order("-test") == [2, 3, 1]
    assert order("policy_lr") == [1, 3, 2]
    with pytest.raises(RunError, match="Did you mean policy_lr"):
        order("polcy_lr")


def test_rm_needs_a_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = make_run(tmp_path, 1), make_run(tmp_path, 2)
    base = ["--runs-dir", str(tmp_path)]
    assert main(["rm", other.id, *base]) == 0
    assert other.path.exists()
    assert "nothing was deleted" in capsys.readouterr().out
    assert main(["rm", other.id, "--yes", *base]) == 0
    assert run_ids(tmp_path) == [run.id]
    assert not (tmp_path / LAST_RUN).is_symlink()


def test_a_running_run_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    run.update_meta(status="running")  # this process
    for verb in ("rm", "archive"):
        assert main([verb, run.id, "--yes", "--runs-dir", str(tmp_path)]) == 2
        assert "still running" in capsys.readouterr().err
    assert run.path.exists()


def test_archive_and_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path)
    base = ["--runs-dir", str(tmp_path)]
    assert main(["archive", run.id, "--yes", *base]) == 0
    assert run_ids(tmp_path) == []
    assert main(["archive", "--list", *base]) == 0
    assert run.id in capsys.readouterr().out
    assert main(["archive", "--restore", run.id, "--yes", *base]) == 0
    assert run_ids(tmp_path) == [run.id]


def test_prune_keeps_best_last_and_top(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    scores = {100: 5.0, 200: 9.0, 300: 7.0, 400: 8.0, 500: 1.0}
    for steps, score in scores.items():
        save_checkpoint(run.checkpoints_dir, steps, {}, {}, {"score": score}, best=score == 9.0)
    base = ["prune", "--runs-dir", str(tmp_path), "--keep-top", "2"]
    assert main(base) == 0
    assert len(list_checkpoints(run.checkpoints_dir)) == 5
    assert main([*base, "--yes"]) == 0
    assert [c.env_steps for c in list_checkpoints(run.checkpoints_dir)] == [200, 400, 500]


def test_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, 7, 450.0)
    base = ["runs", "--runs-dir", str(tmp_path), "--columns"]
    assert main([*base, "seed", "test", "policy_lr"]) == 0
    assert capsys.readouterr().out.split("\n")[1].split()[1:] == ["7", "450", "0.001"]
    assert main([*base, "polcy_lr"]) == 2
    assert "Did you mean policy_lr" in capsys.readouterr().err
