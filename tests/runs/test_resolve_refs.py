"""What a user may type for a run and for a checkpoint, and what a wrong ref is told."""

import re
from pathlib import Path

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import best
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run, run_ids
from gymnasium_solver.runs.run import Run

NEW = "CartPole-v1-ppo-20260102-000000-beef"
OLD = "CartPole-v1-ppo-20260101-000000-cafe"
SWEEP = "tune-20260101-000000-abcd"
ANT = "Ant-v5-ppo-20251231-000000-0001"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three runs; the second has checkpoints 100 (best), 200, 300 (last)."""
    root = tmp_path / "runs"
    for run_id in (ANT, OLD, NEW):
        (root / run_id / "checkpoints").mkdir(parents=True)
        (root / run_id / "meta.json").write_text("{}")
    (root / "@last").symlink_to(NEW)
    (root / "notes").mkdir()
    for env_steps in (100, 200, 300):
        save_checkpoint(root / OLD / "checkpoints", env_steps, {}, {}, {}, best=env_steps == 100)
    return root


def test_an_unknown_name_is_answered_with_the_nearest_or_three_runs(tmp_path: Path) -> None:
    for i in range(9):
        made = tmp_path / f"CartPole-v1-ppo-2026010{i}-{i}"
        made.mkdir()
        (made / "meta.json").write_text("{}")
    with pytest.raises(RunError, match=r"Did you mean"):
        resolve_run("CartPole-v2-ppo-20260103-3", tmp_path)
    with pytest.raises(RunError, match=r"and 6 more \(gsolve runs\)"):
        resolve_run("zzz", tmp_path)


def test_run_ids_newest_first(root: Path) -> None:
    (root / ".tmp-@last-dead").symlink_to(NEW)  # a kill while the pointer was switched
    assert run_ids(root) == [NEW, OLD, ANT]
    assert run_ids(root / "none") == []


@pytest.mark.parametrize(
    ("ref", "run_id"),
    [("@last", NEW), (OLD, OLD), ("cafe", OLD), ("ant", ANT), (f"{ANT}/", ANT), ("20260102", NEW)],
)
def test_refs_of_runs(root: Path, ref: str, run_id: str) -> None:
    run = resolve_run(ref, root)
    assert (run.id, run.path) == (run_id, root / run_id)


def test_an_id_wins_over_being_part_of_another(root: Path) -> None:
    longer = root / (NEW + "-copy")
    longer.mkdir()
    (longer / "meta.json").write_text("{}")
    assert resolve_run(NEW, root).id == NEW


def test_paths_to_run_folders(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = root.parent / "none"
    assert resolve_run(str(root / OLD), elsewhere).id == OLD
    assert resolve_run(str(root / "@last"), elsewhere).id == NEW
    monkeypatch.chdir(root.parent)
    assert resolve_run(f"runs/{ANT}/", elsewhere).id == ANT
    monkeypatch.chdir(root / OLD)
    assert resolve_run(".", elsewhere).id == OLD
    with pytest.raises(RunError, match=r"no meta\.json"):
        resolve_run(str(root / "notes"), root)
    with pytest.raises(RunError, match="paths are refused"):  # it is one, but not named by its id
        resolve_run(str(root / OLD), root, allow_paths=False)


def test_a_run_is_taken_as_it_is(root: Path) -> None:
    run = Run(root / OLD)
    assert resolve_run(run, root / "none") is run
    assert resolve_checkpoint(run, root / "none").label == "@best"


def test_last_survives_a_lost_pointer(root: Path) -> None:
    (root / "@last").unlink()
    assert resolve_run("@last", root).id == NEW
    (root / "@last").symlink_to("deleted-run")
    assert resolve_run("@last", root).id == NEW
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "meta.json").write_text("{}")
    (root / "@last").unlink()
    (root / "@last").symlink_to("../outside")
    assert resolve_run("@last", root).id == NEW
    (root / "@last").unlink()
    (root / "@last").write_text(OLD)  # file systems without symlinks
    assert resolve_run("@last", root).id == OLD


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("CartPole", f"matches 2 runs: {NEW}, {OLD}"),
        ("LunarLander", f"no run 'LunarLander' in .* Runs in .*: {NEW}, {OLD}, {ANT}"),
        (NEW.replace("beef", "bead"), f"Did you mean {NEW}"),
        ("@newest", "@ is @last"),
        ("", "not a run"),
        ("/", "not a run"),
        ("notes", "no run 'notes'"),
        ("x\0y", "no run"),
    ],
)
def test_wrong_refs_list_what_exists(root: Path, ref: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        resolve_run(ref, root)


def test_a_long_listing_is_cut(root: Path) -> None:
    for n in range(15):
        folder = root / f"Taxi-v3-ppo-20260103-000000-{n:04x}"
        folder.mkdir()
        (folder / "meta.json").write_text("{}")
    with pytest.raises(
        RunError, match=r"matches 15 runs: .* and 5 more\. Give a longer part of the id"
    ):
        resolve_run("Taxi", root)


def test_no_runs_at_all(tmp_path: Path) -> None:
    for ref in ("@last", "abc"):
        with pytest.raises(RunError, match=r"There are no runs in .*gsolve train"):
            resolve_run(ref, tmp_path)


@pytest.mark.parametrize("ref", ["../x", "..", "../runs/@last", "a/../../x", "..\\x", "@last/../x"])
def test_traversal_is_refused(root: Path, ref: str) -> None:
    (root.parent / "x").mkdir()
    (root.parent / "x" / "meta.json").write_text("{}")
    for resolve in (resolve_run, resolve_checkpoint):
        with pytest.raises(RunError, match="not a run"):
            resolve(ref, root)


@pytest.mark.parametrize(
    ("selector", "env_steps", "label"),
    [
        ("", 100, "@best"),
        ("/@best", 100, "@best"),
        ("/@last", 300, "@last"),
        ("/200", 200, "200"),
        ("/step=200", 200, "200"),
        ("/checkpoints/200", 200, "200"),
        ("/checkpoints/best/", 100, "@best"),
    ],
)
def test_refs_of_checkpoints(
    root: Path,
    selector: str,
    env_steps: int,
    label: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root.parent)
    for run in (OLD, "cafe", str(root / OLD), f"runs/{OLD}"):
        found = resolve_checkpoint(run + selector, root)
        assert found.run.id == OLD
        assert found.path.resolve() == root / OLD / "checkpoints" / str(env_steps)
        assert found.label == label


def test_checkpoint_of_the_last_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(root / NEW / "checkpoints", 50, {}, {}, {})
    monkeypatch.chdir(root.parent)
    for ref in ("@last", "@last/@last", "@last/50", "runs/@last", "runs/@last/@last"):
        run, path, label = resolve_checkpoint(ref, root)
        assert (run.id, path.name) == (NEW, "50")
        assert label == ("50" if ref == "@last/50" else "@last")


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("cafe/250", "no checkpoint at 250 env steps. It has: 100 @best, 200, 300 @last."),
        ("cafe/newest", "'newest' in 'cafe/newest' is not a checkpoint; expected @best"),
        ("cafe/step=x", "expected @best, @last, <env_steps> or step=N"),
        ("cafe/checkpoints/x", "expected @best"),
        ("beef", "has no @last checkpoint. It has none yet."),
        ("beef/@best", "has no @best checkpoint"),
        ("nowhere/@best", "no run 'nowhere'"),
        ("a/b/c", "'a/b/c' is not a run folder"),
        ("a/b/@best", "'a/b' is not a run folder"),
    ],
)
def test_wrong_checkpoints_list_what_exists(root: Path, ref: str, message: str) -> None:
    with pytest.raises(RunError, match=re.escape(message)):
        resolve_checkpoint(ref, root)


def test_lost_checkpoint_pointers(root: Path) -> None:
    checkpoints = root / OLD / "checkpoints"
    (checkpoints / "last").unlink()
    assert resolve_checkpoint(f"{OLD}/@last", root).path.name == "300"
    (checkpoints / "best").unlink()
    assert resolve_checkpoint(OLD, root).label == "@last"
    with pytest.raises(RunError, match=r"no @best checkpoint\. It has: 100, 200, 300"):
        resolve_checkpoint(f"{OLD}/@best", root)


def test_runs_of_a_sweep(root: Path) -> None:
    sweep = "tune-20260103-000000-0002"
    for place in ("trials/0000/seed0", "trials/0001/seed0", "final/0001/choice0"):
        (root / "sweeps" / sweep / place / "checkpoints").mkdir(parents=True)
        (root / "sweeps" / sweep / place / "meta.json").write_text("{}")
    (root / "sweeps" / "@last").symlink_to(sweep)
    trial = root / "sweeps" / sweep / "trials/0001/seed0"
    for ref in (sweep, "tune", "@last", f"sweeps/{sweep}"):
        assert resolve_run(f"{ref}/trials/0001/seed0", root, allow_paths=False).path == trial
    assert resolve_run("tune/final/0001/choice0", root).path.name == "choice0"
    save_checkpoint(trial / "checkpoints", 50, {}, {}, {})
    assert (
        resolve_checkpoint("tune/trials/0001/seed0/50", root, allow_paths=False).run.path == trial
    )
    for ref, message in (
        (
            "tune/trials/0009/seed0",
            "has no run 'trials/0009/seed0'; it has: final/0001/choice0, tr",
        ),
        ("nothing/trials/0000/seed0", "there is no sweep"),
        (f"../runs/sweeps/{sweep}/trials/0000/seed0", "is not a run"),
    ):
        with pytest.raises(RunError, match=re.escape(message)):
            resolve_run(ref, root, allow_paths=False)


# -- experiments and sweeps -----------------------------------------------------------------------


def trained(folder: Path, score: float, env_id: str = "CartPole-v1") -> None:
    """A finished run with a checkpoint and a validation."""
    identity = {"env_id": env_id, "algo_id": "ppo", "seed": int(score)}
    run = Run.create(f"env_id: {env_id}\n", identity, folder.parent, name=folder.name)
    save_checkpoint(run.checkpoints_dir, 100, {}, {}, {"score": score}, best=True)
    run.update_meta(status="finished", best={"score": score, "env_steps": 100, "epoch": 1})


@pytest.fixture
def groups(root: Path) -> Path:
    """An experiment of three seeds, and a sweep that trial 1 has won."""
    folder = root / "experiments" / "study"
    folder.mkdir(parents=True)
    rows = [f"- {{run: study-s{i}, group: g, seed: {i}, config: a.yaml}}" for i in range(3)]
    text = "created_at: now\ncommand: []\nruns:\n" + "\n".join(rows)
    (folder / "experiment.yaml").write_text(text)
    for i, score in enumerate((10, 30, 20)):
        trained(root / f"study-s{i}", score)
    sweep = root / "sweeps" / SWEEP
    for place, score in (("trials/0000/seed0", 90), ("trials/0001/seed0", 40),
                         ("final/0001/seed0", 50), ("final/0001/seed1", 60)):  # fmt: skip
        (sweep / place).parent.mkdir(parents=True, exist_ok=True)
        trained(sweep / place, score)
    (sweep / "sweep.yaml").write_text("")
    (sweep / "base.yaml").write_text("")
    (sweep / "result.json").write_text('{"winner": 1}')
    return root


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("ref", "path", "said"),
    [
        ("study", "study-s1", "seed 30, best validation 30"),
        ("study/@best", "study-s1", "seed 30"),
        ("experiments/study", "study-s1", "seed 30"),
        ("tune", f"sweeps/{SWEEP}/final/0001/seed1", "the winner, trial 1, seed 60"),
        (f"{SWEEP}/trials/0000", f"sweeps/{SWEEP}/trials/0000/seed0", "seed 90"),
        (f"{SWEEP}/trials/0001/seed0/@last", f"sweeps/{SWEEP}/trials/0001/seed0", ""),
    ],
)  # fmt: skip
def test_an_experiment_stands_for_its_best_run(
    groups: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    ref: str, path: str, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(best, "_told", set())
    assert resolve_checkpoint(ref, groups).run.path == groups / path
    assert said in capsys.readouterr().err


def test_what_changes_a_run_takes_no_experiment(groups: Path) -> None:
    with pytest.raises(RunError, match="matches 3 runs"):
        resolve_run("study", groups)
    with pytest.raises(RunError, match="there is no run"):
        resolve_checkpoint("tune", groups, default="last")
    trial = f"{SWEEP}/trials/0000/seed0"
    assert resolve_run(trial, groups, allow_paths=False).path == groups / "sweeps" / trial
    with pytest.raises(RunError, match="paths are refused"):
        resolve_run(str(groups / OLD), groups, allow_paths=False)


def test_an_experiment_of_several_environments_has_no_best_run(groups: Path) -> None:
    for path in groups.glob("study-s2/*.*"):
        path.unlink()
    (groups / "study-s2").rename(groups / "old")
    trained(groups / "study-s2", 20, "Acrobot-v1")
    with pytest.raises(RunError, match="several environments"):
        resolve_checkpoint("study", groups)
