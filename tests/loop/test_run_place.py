"""`--run-name`, `--run-dir` and `--if-exists`: a start that can be repeated."""

from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.edits import Edit, add_edit
from gymnasium_solver.runs.manage import ARCHIVE
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.run_place import Place, choose_place

CONFIG = load_config("CartPole-v1:ppo")


def mine(root: Path, if_exists: str = "resume", config: Config = CONFIG) -> Place:
    return choose_place(root, config, name="mine", if_exists=if_exists)


def make_run(root: Path, *, status: str = "interrupted", has_checkpoint: bool = True) -> Run:
    config = CONFIG.replace(seed=3)
    identity = {"env_id": config.env_id, "algo_id": "ppo", "variant": "ppo", "seed": 3}
    run = Run.create(dump_config(config), identity, root, name="mine")
    if has_checkpoint:
        save_checkpoint(run.checkpoints_dir, 100, {}, {}, {"score": 1.0})
    run.update_meta(status=status)
    return run


def test_a_new_folder_here_or_anywhere(tmp_path: Path) -> None:
    assert choose_place(tmp_path, CONFIG) == Place(tmp_path)
    folder = str(tmp_path / "a" / "b")
    assert choose_place(tmp_path, CONFIG, folder=folder) == Place(tmp_path / "a", "b")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"if_exists": "resume"}, "needs --run-name"),
        ({"name": "a", "folder": "b"}, "not both"),
        ({"name": "a", "if_exists": "resum"}, "Did you mean resume"),
        ({"name": "mine"}, "add --if-exists resume"),
        ({"name": "file"}, "is not a run"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    make_run(tmp_path)
    (tmp_path / "file").mkdir()
    with pytest.raises(RunError, match=match):
        choose_place(tmp_path, CONFIG, **options)


def test_resume_or_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert mine(tmp_path).is_resume
    with pytest.raises(RunError, match=r"other values of n_steps\."):
        mine(tmp_path, config=CONFIG.replace(n_steps=64))
    run.update_meta(status="finished")
    place = mine(tmp_path)
    assert (place.is_resume, place.is_finished) == (False, True)


def test_auto_is_what_it_has_become(tmp_path: Path) -> None:
    run = make_run(tmp_path)  # its config has what `auto` came to
    changed = CONFIG.replace(normalize_obs="auto", normalize_reward="auto")
    assert mine(tmp_path, config=changed).is_resume
    run.config_path.write_text(dump_config(CONFIG.replace(seed=3, normalize_obs="rolling")))
    assert mine(tmp_path, config=CONFIG.replace(normalize_obs="auto")).is_resume
    with pytest.raises(RunError, match=r"other values of normalize_obs\."):
        mine(tmp_path, config=CONFIG.replace(normalize_obs=False))


def test_what_was_set_while_it_trained_is_no_other_setting(tmp_path: Path) -> None:
    """As after `gsolve set RUN policy_lr=...`, twice: the run, or its experiment, continues."""
    run = make_run(tmp_path)
    config = load_config(str(run.config_path))
    start = config_dict(config)["policy_lr"]
    for i, (old, new) in enumerate([(start, 0.5), (0.5, 0.25)]):
        add_edit(run, Edit(str(i), 50 * i, i, {"policy_lr": [old, new]}, "gsolve set"))
    run.write_config(dump_config(config.replace(policy_lr=0.25)))
    assert mine(tmp_path).is_resume
    with pytest.raises(RunError, match=r"other values of policy_lr\."):
        mine(tmp_path, config=CONFIG.replace(policy_lr=0.25))


def test_new_adds_a_number(tmp_path: Path) -> None:
    make_run(tmp_path)
    (tmp_path / "mine-2").mkdir()
    assert mine(tmp_path, "new").name == "mine-3"


@pytest.mark.parametrize(("policy", "saved"), [("restart", True), ("resume", False)])
def test_the_earlier_run_is_kept_aside(tmp_path: Path, policy: str, saved: bool) -> None:
    make_run(tmp_path, has_checkpoint=saved)
    place = mine(tmp_path, policy)
    assert (place.name, place.is_resume) == ("mine", False)
    assert not (tmp_path / "mine").exists()
    assert len(list((tmp_path / ARCHIVE).iterdir())) == 1


def test_a_folder_prepared_for_a_job_is_no_run_yet(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    (folder / "job.log").write_text("output\n")
    assert mine(tmp_path) == Place(tmp_path, "mine")
    run = make_run(tmp_path, has_checkpoint=False)
    assert (folder / "job.log").read_text() == "output\n"
    assert run.meta()["seed"] == 3


def test_a_job_that_died_before_its_first_checkpoint_starts_anew_in_place(tmp_path: Path) -> None:
    run = make_run(tmp_path, has_checkpoint=False)
    (run.path / "job.json").write_text("{}")
    run.log_text("old")
    assert mine(tmp_path) == Place(tmp_path, "mine")
    assert [path.name for path in run.path.iterdir()] == ["job.json"]


@pytest.mark.parametrize("killed_after", ["checkpoints", "config.yaml"])
def test_a_creation_that_was_killed_is_begun_anew(tmp_path: Path, killed_after: str) -> None:
    run = make_run(tmp_path, has_checkpoint=False)
    run.meta_path.unlink()
    if killed_after == "checkpoints":
        for path in run.path.iterdir():
            if path.is_file():
                path.unlink()
    assert mine(tmp_path) == Place(tmp_path, "mine")
    assert make_run(tmp_path).meta()["seed"] == 3


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not a run"):
        mine(tmp_path)
    assert (tmp_path / "mine" / "thesis.tex").exists()
