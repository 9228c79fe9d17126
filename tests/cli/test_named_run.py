"""`--run-name`, `--run-dir` and `--if-exists`: a start that can be repeated."""

from pathlib import Path

import pytest

import gymnasium_solver.cli.train  # noqa: F401 (it declares the verb)
from gymnasium_solver.cli.field_flags import read_fields
from gymnasium_solver.cli.flags import Args, UsageError
from gymnasium_solver.cli.train_flags import choose_place
from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.edits import Edit, add_edit
from gymnasium_solver.runs.manage import ARCHIVE
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import load_config

CONFIG = load_config("CartPole-v1:ppo")


def words(root: Path, **flags: str) -> Args:
    given = [f"--{name}={value}" for name, value in {"runs_dir": root, **flags}.items()]
    return read_fields("train", given)


def make_run(root: Path, *, status: str = "interrupted", has_checkpoint: bool = True) -> Run:
    config = CONFIG.replace(seed=3)
    identity = {"env_id": config.env_id, "algo_id": "ppo", "variant": "ppo", "seed": 3}
    run = Run.create(dump_config(config), identity, root, name="mine")
    if has_checkpoint:
        save_checkpoint(run.checkpoints_dir, 100, {}, {}, {"score": 1.0})
    run.update_meta(status=status)
    return run


def test_without_a_name_nothing_changes(tmp_path: Path) -> None:
    place = choose_place(words(tmp_path), CONFIG)
    assert (place.root, place.name) == (tmp_path, None)


def test_a_folder_anywhere(tmp_path: Path) -> None:
    place = choose_place(words(tmp_path, run_dir=str(tmp_path / "a" / "b")), CONFIG)
    assert (place.root, place.name, place.is_resume) == (tmp_path / "a", "b", False)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"if_exists": "resume"}, "needs --run-name"),
        ({"run_name": "a", "run_dir": "b"}, "not both"),
        ({"run_name": "a", "if_exists": "resum"}, "Did you mean resume"),
        ({"run_name": "mine"}, "add --if-exists resume"),
        ({"run_name": "file"}, "is not a run"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, str], match: str) -> None:
    make_run(tmp_path)
    (tmp_path / "file").mkdir()
    with pytest.raises(UsageError, match=match):
        choose_place(words(tmp_path, **options), CONFIG)


def test_resume_or_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    options = words(tmp_path, run_name="mine", if_exists="resume")
    assert choose_place(options, CONFIG).is_resume
    run.update_meta(status="finished")
    place = choose_place(options, CONFIG)
    assert (place.is_resume, place.is_finished) == (False, True)


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    make_run(tmp_path)
    options = words(tmp_path, run_name="mine", if_exists="resume")
    with pytest.raises(UsageError, match=r"other values of n_steps\."):
        choose_place(options, CONFIG.replace(n_steps=64))


def test_what_was_decided_at_the_start_is_no_other_setting(tmp_path: Path) -> None:
    make_run(tmp_path)  # its config has what `auto` came to
    options = words(tmp_path, run_name="mine", if_exists="resume")
    changed = CONFIG.replace(normalize_obs="auto", normalize_reward="auto")
    assert choose_place(options, changed).is_resume


def test_new_adds_a_number(tmp_path: Path) -> None:
    make_run(tmp_path)
    (tmp_path / "mine-2").mkdir()
    place = choose_place(words(tmp_path, run_name="mine", if_exists="new"), CONFIG)
    assert place.name == "mine-3"


@pytest.mark.parametrize(("policy", "saved"), [("restart", True), ("resume", False)])
def test_the_earlier_run_is_kept_aside(tmp_path: Path, policy: str, saved: bool) -> None:
    make_run(tmp_path, has_checkpoint=saved)
    place = choose_place(words(tmp_path, run_name="mine", if_exists=policy), CONFIG)
    assert (place.name, place.is_resume) == ("mine", False)
    assert not (tmp_path / "mine").exists()
    assert len(list((tmp_path / ARCHIVE).iterdir())) == 1


def test_a_folder_prepared_for_a_job_is_no_run_yet(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    (folder / "job.log").write_text("output\n")
    options = words(tmp_path, run_name="mine", if_exists="resume")
    place = choose_place(options, CONFIG)
    assert (place.name, place.is_resume) == ("mine", False)
    run = make_run(tmp_path, has_checkpoint=False)
    assert (folder / "job.log").read_text() == "output\n"
    assert run.meta()["seed"] == 3


def test_a_job_that_died_before_its_first_checkpoint_starts_anew_in_place(tmp_path: Path) -> None:
    run = make_run(tmp_path, has_checkpoint=False)
    (run.path / "job.json").write_text("{}")
    run.log_text("old")
    place = choose_place(words(tmp_path, run_name="mine", if_exists="resume"), CONFIG)
    assert (place.name, place.is_resume) == ("mine", False)
    assert [path.name for path in run.path.iterdir()] == ["job.json"]


@pytest.mark.parametrize("killed_after", ["checkpoints", "config.yaml"])
def test_a_creation_that_was_killed_is_begun_anew(tmp_path: Path, killed_after: str) -> None:
    run = make_run(tmp_path, has_checkpoint=False)
    run.meta_path.unlink()
    if killed_after == "checkpoints":
        for path in run.path.iterdir():
            if path.is_file():
                path.unlink()
    place = choose_place(words(tmp_path, run_name="mine", if_exists="resume"), CONFIG)
    assert (place.name, place.is_resume) == ("mine", False)
    assert make_run(tmp_path).meta()["seed"] == 3


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="is not a run"):
        choose_place(words(tmp_path, run_name="mine", if_exists="resume"), CONFIG)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_auto_is_what_it_has_become(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.config_path.write_text(dump_config(CONFIG.replace(seed=3, normalize_obs="rolling")))
    options = words(tmp_path, run_name="mine", if_exists="resume")
    assert choose_place(options, CONFIG.replace(normalize_obs="auto")).is_resume
    with pytest.raises(UsageError, match=r"other values of normalize_obs\."):
        choose_place(options, CONFIG.replace(normalize_obs=False))


def test_what_was_set_while_it_trained_is_no_other_setting(tmp_path: Path) -> None:
    """As after `gsolve set RUN policy_lr=...`, twice: the run, or its experiment, continues."""
    run = make_run(tmp_path)
    config = load_config(str(run.config_path))
    start = config_dict(config)["policy_lr"]
    for i, (old, new) in enumerate([(start, 0.5), (0.5, 0.25)]):
        add_edit(run, Edit(str(i), 50 * i, i, {"policy_lr": [old, new]}, "gsolve set"))
    run.write_config(dump_config(config.replace(policy_lr=0.25)))
    options = words(tmp_path, run_name="mine", if_exists="resume")
    assert choose_place(options, CONFIG).is_resume
    with pytest.raises(UsageError, match=r"other values of policy_lr\."):
        choose_place(options, CONFIG.replace(policy_lr=0.25))
