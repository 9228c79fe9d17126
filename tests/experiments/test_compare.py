"""Groups of seeds, and verdicts that need evidence."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.compare import compare
from gymnasium_solver.experiments.comparison_report import draw, looks, notes
from gymnasium_solver.experiments.groups import group_runs, siblings
from gymnasium_solver.experiments.statistics import seeds_needed
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run


def make_run(
    root: Path, score: float | None, seed: int, lr: Any = 0.001, env_id: str = "CartPole-v1"
) -> str:
    yaml = f"env_id: {env_id}\npolicy_lr: {json.dumps(lr)}\nseed: {seed}\n"
    identity = {"env_id": env_id, "algo_id": "ppo", "variant": "ppo", "seed": seed}
    run = Run.create(yaml, identity | {"reward_threshold": 475.0}, root)
    for step in (1, 2):
        value = None if score is None else score * step / 2
        row = {"env_steps": 100 * step, "epoch": step, "wall_s": 1.0 * step}
        run.log_metrics(row | {"val/roll/ep_rew/mean": value})
    if score is not None:
        test = {"mean": score, "stderr": 1.0, "episodes": 100, "greedy": True}
        run.update_meta(status="finished", test=test, solved=score >= 475, wall_s=2.0)
    return run.id


def test_seeds_of_one_config_form_a_group(tmp_path: Path) -> None:
    ids = [make_run(tmp_path, 480.0 + seed, seed) for seed in (1, 2, 3)]
    other = make_run(tmp_path, 100.0, 1, lr={"start": 0.003, "end": 0.0})
    groups = group_runs([*ids, other, ids[0]], tmp_path)
    assert [group.label for group in groups] == [
        "CartPole-v1:ppo (policy_lr=0.001)",
        "CartPole-v1:ppo (policy_lr=lin_0.003)",
    ]
    assert groups[0].scores == [481.0, 482.0, 483.0]


def test_labels_group_by_hand(tmp_path: Path) -> None:
    a, b, c = (make_run(tmp_path, 480.0, seed, lr) for seed, lr in ((1, 0.1), (2, 0.2), (3, 0.3)))
    groups = group_runs([f"old={a},{b}", f"new={c}"], tmp_path)
    assert [(g.label, len(g.members)) for g in groups] == [("old", 2), ("new", 1)]
    with pytest.raises(RunError, match="empty run name"):
        group_runs(["old="], tmp_path)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ([500, 499, 498, 497], [100, 110, 120, 130], "better"),
        ([100, 110, 120, 130], [500, 499, 498, 497], "worse"),
        ([500, 499, 498], [100, 110, 120], "better"),
        ([500, 499], [100, 110, 120, 130], "cannot tell"),
        ([400, 500, 300, 450], [410, 490, 310, 455], "cannot tell"),
        ([499.99, 499.99, 499.99], [500, 500, 500], "equal"),
        ([496, 496.1, 496], [500, 500.1, 500], "equal"),  # less than 1 % of 475 - 22
    ],
)
def test_verdicts(tmp_path: Path, ours: list[float], theirs: list[float], word: str) -> None:
    first = [make_run(tmp_path, x, i) for i, x in enumerate(theirs)]
    second = [make_run(tmp_path, x, i, lr=0.01) for i, x in enumerate(ours)]
    (verdict,) = compare(group_runs([*first, *second], tmp_path)).verdicts
    assert verdict.word == word
    assert verdict.text.startswith("no difference" if word == "equal" else word)


def test_several_groups_are_corrected_for_their_number(tmp_path: Path) -> None:
    """Three seeds tell two groups apart, but not two from a third."""
    ids = [make_run(tmp_path, 100.0 * lr + i, i, lr=lr) for lr in (1, 2) for i in range(3)]
    assert [v.word for v in compare(group_runs(ids, tmp_path)).verdicts] == ["better"]
    ids += [make_run(tmp_path, 100.0 + i, i, lr, "Acrobot-v1") for lr in (3, 4) for i in range(3)]
    found = compare(group_runs(ids, tmp_path))
    assert [verdict.word for verdict in found.verdicts] == ["cannot tell", "equal"]
    assert "3 seeds, at least 4 on each side are needed for 2 comparisons" in found.verdicts[0].text
    assert any("corrected for their number (Holm)" in note for note in notes(found))


def test_the_smallest_difference_that_matters(tmp_path: Path) -> None:
    first = [make_run(tmp_path, 400.0 + i, i) for i in range(4)]
    second = [make_run(tmp_path, 412.0 + i, i, lr=0.01) for i in range(4)]
    groups = group_runs([*first, *second], tmp_path)
    assert compare(groups).verdicts[0].word == "better"
    assert 4 < compare(groups).verdicts[0].margin < 5, "1 % of 475 minus what random actions get"
    assert compare(groups, "20").verdicts[0].word == "equal"
    assert compare(groups, "5%").verdicts[0].word == "equal"
    assert compare(groups, "13").verdicts[0].text.startswith("cannot tell whether it matters")
    with pytest.raises(ConfigError, match="such as 1%"):
        compare(groups, "much")


def test_runs_of_one_seed_are_one_seed(tmp_path: Path) -> None:
    """Three identical runs on each side are one seed on each side."""
    first = [make_run(tmp_path, 73.2, 1) for _ in range(3)]
    second = [make_run(tmp_path, 108.0, 1, lr=0.01) for _ in range(3)]
    groups = group_runs([*first, *second], tmp_path)
    assert [len(group.members) for group in groups] == [1, 1]
    assert [len(group.repeats) for group in groups] == [2, 2]
    found = compare(groups)
    assert found.verdicts[0].text.startswith("cannot tell: 1 seed")
    assert sum("one run per seed counts" in note for note in notes(found)) == 2
    by_hand = group_runs([f"all={','.join([*first, *second])}"], tmp_path)
    assert len(by_hand[0].members) == 2, "one per seed and config"
    assert len(siblings(Run(tmp_path / first[0])).members) == 1


def test_the_newest_run_of_a_seed_counts_if_it_has_a_score(tmp_path: Path) -> None:
    old, new, empty = (make_run(tmp_path, score, 1) for score in (10.0, 20.0, None))
    for name, day in ((old, 1), (new, 2), (empty, 3)):
        Run(tmp_path / name).update_meta(created_at=f"2026-01-0{day}T00:00:00Z")
    (group,) = group_runs([new, empty, old], tmp_path)
    assert ([m.summary.id for m in group.members], group.repeats) == ([new], (empty, old))


def test_how_many_seeds_would_tell() -> None:
    assert seeds_needed([10.0, 12.0, 14.0], [11.0, 13.0, 15.0]) == 64  # effect of half a deviation
    assert seeds_needed([10.0, 12.0], [11.0, 11.0]) is None
    assert seeds_needed([1.0, 1.0, 1.0], [9.0, 9.0, 9.0]) == 3
    assert seeds_needed([1.0, 1.0, 1.0], [9.0, 9.0, 9.0], 5) == 4


def test_runs_without_a_score_are_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, None, 1)
    with pytest.raises(RunError, match="no score yet"):
        compare(group_runs([run], tmp_path))


def test_several_environments_are_aggregated(tmp_path: Path) -> None:
    ids = [
        make_run(tmp_path, 300.0 if lr == 0.1 else 475.0, seed, lr, env_id)
        for lr in (0.1, 0.2)
        for env_id in ("CartPole-v1", "Acrobot-v1")
        for seed in (1, 2, 3)
    ]
    named = [f"x:{'ab'[i // 6]}={run}" for i, run in enumerate(ids)]
    found = compare(group_runs(named, tmp_path))
    assert found.aggregate is not None
    assert found.aggregate["b"].value > found.aggregate["a"].value
    assert found.ranks == {"a": 2.0, "b": 1.0}


def test_verb_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    ids = [make_run(root, 480.0 + i, i, lr) for lr in (0.1, 0.2) for i in range(4)]
    files = [tmp_path / "out" / f"c.{kind}" for kind in ("csv", "md", "json", "svg")]
    command = ["compare", *ids, "--runs-dir", str(root), "-o", *map(str, files)]
    assert main(command) == 0
    assert "no difference that matters" in capsys.readouterr().out
    assert len(list(csv.reader(files[0].open()))) == 9
    assert "| policy_lr | 0.1 | 0.2 |" in files[1].read_text()
    assert json.loads(files[2].read_text())["groups"][0]["iqm"]["value"] == 481.5
    assert "<svg" in files[3].read_text()


def test_verb_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "x", "-o", "a.txt", "--runs-dir", str(tmp_path)]) == 2
    assert "expected one of" in capsys.readouterr().err


def test_bands_smoothing_and_time_in_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [make_run(tmp_path, 480.0 + seed, seed) for seed in (1, 2, 3)]
    picture = tmp_path / "p.png"
    words = ["--runs-dir", str(tmp_path), "-o", str(picture), "--x", "wall_s", "--smooth", "2"]
    assert main(["plot", *ids, "--bands", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == ["CartPole-v1:ppo"]
    assert picture.stat().st_size > 10_000
    picture.unlink()
    assert main(["plot", *ids, *words]) == 0
    assert picture.stat().st_size > 10_000
    assert main(["plot", ids[0], "--smooth", "0", "--runs-dir", str(tmp_path)]) == 2
    assert "--smooth 0" in capsys.readouterr().err


def test_algorithms_keep_their_colours(tmp_path: Path) -> None:
    ids = [make_run(tmp_path, 1.0, 1, lr=0.1 + n) for n in range(14)]
    groups = group_runs(ids, tmp_path)
    assert len({look.colour for look in looks(groups[:7])}) == 7
    assert len(set(looks(groups))) == 14, "groups of the same colour differ in their dashes"
    assert looks(groups)[0] == looks(groups[:1])[0]
    draw(groups, tmp_path / "many.png")
    assert (tmp_path / "many.png").stat().st_size > 10_000


def test_a_checkpoint_is_judged_by_its_own_score(tmp_path: Path) -> None:
    run = Run(tmp_path / make_run(tmp_path, 400.0, 1))
    for steps, score in ((100, 10.0), (200, 30.0)):
        save_checkpoint(run.checkpoints_dir, steps, {}, {}, {"score": score})
    groups = group_runs([f"{run.id}/100", f"{run.id}/@last", run.id], tmp_path)
    assert [group.scores for group in groups] == [[10.0], [30.0], [400.0]]
    assert groups[0].label == f"{run.id}/100"
