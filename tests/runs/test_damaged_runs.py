"""A damaged or forged run is told in one line, changes nothing and hides no other run."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli import main as cli
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from tests.runs import damage, fuzz

IDENTITY = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 1}
DEEP = "[" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    with Run.create("env_id: CartPole-v1\nalgo_id: ppo\n", IDENTITY, tmp_path) as run:
        for env_steps in (100, 200):
            run.log_metrics({"env_steps": env_steps, "epoch": 1, "wall_s": 1.0, "loss": 0.5})
            run.log_event("eval", env_steps=env_steps, mean=1.0, stage="val")
            save_checkpoint(run.checkpoints_dir, env_steps, {}, {"n": 1}, {"score": 1.0})
        run.update_meta(status="finished", env_steps=200)
    return run


def edit_meta(run: Run, **fields: Any) -> None:
    run.meta_path.write_text(json.dumps(json.loads(run.meta_path.read_text()) | fields))


@pytest.mark.parametrize("text", [DEEP, '{"a": ' * 50_000, "[]", "", "\x80\xff"])
def test_meta_that_cannot_be_read_is_a_broken_run_among_others(run: Run, text: str) -> None:
    other = Run.create("a: 1\n", IDENTITY, run.path.parent)
    run.meta_path.write_text(text, encoding="latin-1")
    found = {summary.id: summary for summary in query.list_runs(run.path.parent)}
    assert found.keys() == {run.id, other.id}
    assert found[run.id].status == "broken"
    assert "meta.json" in (found[run.id].stop_reason or "")
    with pytest.raises(RunError, match=r"meta\.json"):
        query.get_run(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("env_steps", "many"),
        ("env_steps", -1),
        ("epoch", True),
        ("wall_s", [1]),
        ("threshold", "high"),
        ("best", {"score": "x", "env_steps": 1}),
        ("best", 3),
        ("test", {"mean": "x"}),
        ("env_id", ["x"]),
        ("status", {}),
    ],
)
def test_a_field_of_another_type_is_named(run: Run, name: str, value: Any, capsys: Any) -> None:
    edit_meta(run, **{name: value})
    with pytest.raises(RunError, match=r"meta\.json: \w+ is .*, expected"):
        query.get_run(run)
    root = str(run.path.parent)
    assert cli.main(["runs", "--runs-dir", root]) == 0
    assert "broken" in capsys.readouterr().out
    assert cli.main(["run", run.id, "--runs-dir", root]) == 2


def test_what_is_not_needed_for_the_list_does_not_break_it(run: Run) -> None:
    edit_meta(run, status="running", pid=10**30, machine="x", resumed="x", git=3, command=7)
    run.metrics_path.write_text(DEEP + "\n")
    assert query.get_run(run).env_steps == 200


def test_deep_or_odd_rows_are_named_with_their_line(run: Run) -> None:
    for text, message in (
        (DEEP, "line 3 is not JSON"),
        ("rubbish", r"metrics\.jsonl line 3 is not JSON.*Delete the line"),
        ("[]", "line 3 is a list"),
        ('{"env_steps": "x"}', "line 3 has env_steps 'x'"),
    ):
        before = run.metrics_path.read_bytes()
        run.metrics_path.write_bytes(before + text.encode() + b"\n")
        with pytest.raises(RunError, match=message):
            query.get_metrics(run)
        run.metrics_path.write_bytes(before)
    run.metrics_path.write_bytes(before + b'{"epoch": 3}\n')
    with pytest.raises(RunError, match="row without env_steps"):
        query.get_metrics(run)
    run.metrics_path.write_bytes(before + b'{"env_steps": 300, "loss": 1e999}\n')
    assert query.get_metrics(run, ["loss"])["loss"][-1] == (300, None)
    run.metrics_path.unlink()
    run.metrics_path.mkdir()
    with pytest.raises(RunError, match="is not a file"):
        read_jsonl(run.metrics_path)
    assert read_jsonl(run.path / "none.jsonl") == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_read(run: Run) -> None:
    manifest = run.checkpoints_dir / "200" / "manifest.json"
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(RunError, match="is not a file"):
        load_checkpoint(manifest.parent)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_file_of_a_run_is_opened_through_a_link_or_a_pipe(
    run: Run, kind: str, tmp_path: Path, capsys: Any
) -> None:
    """One that follows a link shows or changes a file of this machine; one that opens a pipe hangs,
    and so does this test."""
    secret = tmp_path / "secret"
    secret.write_text('{"secret_key": 1}\n')
    (run.path / "run.log").write_text("a line\n")
    names = [p.relative_to(run.path) for p in run.path.rglob("*") if p.is_file()]
    names = [name for name in names if name.parts[-2:-1] not in (("best",), ("last",))]
    for i, name in enumerate(names):
        copy = Path(shutil.copytree(run.path, tmp_path / f"copy{i}", symlinks=True))
        (copy / name).unlink()
        if kind == "link":
            (copy / name).symlink_to(secret)
        else:
            os.mkfifo(copy / name)
        where = ["--runs-dir", str(tmp_path)]
        for argv in (["run", copy.name], ["run", copy.name, "--log", "5"], ["runs"],
                     ["run", copy.name, "--metrics"], ["show", str(copy / "config.yaml")],
                     ["check", str(copy / "config.yaml")]):  # fmt: skip
            cli.main([*argv, *(where if argv[0] in ("run", "runs") else [])])
            out, err = capsys.readouterr()
            assert "secret_key" not in out + err, (name, argv)
            assert "Traceback" not in err, (name, argv)
        assert secret.read_text() == '{"secret_key": 1}\n', name
        shutil.rmtree(copy)


@pytest.mark.parametrize("data", [b"\xff\xfe\x80", b"", b"\x00" * 64])
def test_a_damaged_done_marker(run: Run, data: bytes) -> None:
    (run.checkpoints_dir / "200" / "done").write_bytes(data)
    with pytest.raises(RunError, match="checksum does not match"):
        load_checkpoint(run.checkpoints_dir / "last")


@pytest.mark.parametrize("name", ["../../config.yaml", "/etc/hostname", "..", "a/b.json", "", "x"])
def test_a_manifest_names_files_of_its_own_folder_only(run: Run, name: str) -> None:
    folder = run.checkpoints_dir / "200"
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = manifest["files"]["state.json"]
    damage._sign_manifest(folder, manifest)
    with pytest.raises(RunError, match=r"expected the name of a \.safetensors or"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env_steps": None}, "env_steps is None"),
        ({"env_steps": 100}, "env_steps is 100, but its folder is 200"),
        ({"files": []}, r"files is \[\]"),
        ({"files": {"state.json": "x"}}, "expected its size and sha256"),
        ({"files": {}}, "does not list state.json"),
        ({"format": 7}, "format 7"),
    ],
)
def test_a_manifest_of_other_types(run: Run, change: dict[str, Any], message: str) -> None:
    folder = run.checkpoints_dir / "200"
    manifest = json.loads((folder / "manifest.json").read_text())
    damage._sign_manifest(folder, manifest | change)
    with pytest.raises(RunError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize("file", ["metrics.jsonl", "events.jsonl"])
def test_a_resume_that_fails_has_removed_nothing(run: Run, file: str) -> None:
    """Later checkpoints went before the metrics were read."""
    with (run.path / file).open("a") as stream:
        stream.write(DEEP + "\n")
    before = {p: p.read_bytes() for p in sorted(run.path.rglob("*")) if p.is_file()}
    with pytest.raises(RunError, match=f"{file} line"):
        run.begin_resume(100)
    assert [c.env_steps for c in list_checkpoints(run.checkpoints_dir)] == [100, 200]
    assert {p: p.read_bytes() for p in sorted(run.path.rglob("*")) if p.is_file()} == before


# -- with weights ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A finished PPO run and a finished DQN run."""
    folder = tmp_path_factory.mktemp("templates")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return fuzz.make_templates(folder / "runs")


@pytest.fixture
def root(templates: list[Path], tmp_path: Path) -> Path:
    for path in templates:
        shutil.copytree(path, tmp_path / path.name, symlinks=True)
    return tmp_path


def last(root: Path, algo: str) -> Path:
    return next(p for p in root.iterdir() if f"-{algo}-" in p.name) / "checkpoints" / "last"


def refused(argv: list[str], root: Path, capsys: Any) -> str:
    assert cli.main([*argv, "--runs-dir", str(root)]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    return error


FORGED = [
    ("model", "actor.0.weight", "BF16", "a type that NumPy does not know"),
    ("model", "actor.0.weight", "F8_E4M3", "a type that NumPy does not know"),
    ("model", "actor.0.weight", "F64", "is float64 .*, expected float32"),
    ("model", "actor.0.weight", None, "do not match this policy"),
    ("optimizer", "policy.mean", "I64", "is int64 .*, expected float32"),
    ("optimizer", "policy.mean", None, "the tensor optimizer/policy.mean is missing"),
]


@pytest.mark.parametrize(("stem", "name", "dtype", "message"), FORGED)
def test_a_forged_tensor(
    root: Path, stem: str, name: str, dtype: str | None, message: str, capsys: Any
) -> None:
    folder = last(root, "ppo")
    tensors = damage.read_safetensors(folder / f"{stem}.safetensors")
    name = name if name in tensors else next(n for n in sorted(tensors) if n.endswith("weight"))
    _, shape, data = tensors.pop(name)
    if dtype is not None:
        n = len(data) // 4
        tensors[name] = (dtype, shape, (data * 2)[: n * damage.WIDTHS[dtype]])
    damage.write_safetensors(folder / f"{stem}.safetensors", tensors)
    damage.sign(folder)
    run = folder.parents[1].name
    for argv in (["eval", f"{run}/@last", "--episodes", "1"],
                 ["train", "--resume", run, "--max-env-steps", "300"]):  # fmt: skip
        assert re.search(message, refused(argv, root, capsys))


@pytest.mark.parametrize("stem", ["model", "optimizer", "target", "env", "replay"])
def test_a_missing_file_of_tensors(root: Path, stem: str, capsys: Any) -> None:
    folder = last(root, "dqn")
    (folder / f"{stem}.safetensors").unlink()
    damage.sign(folder)
    run = folder.parents[1].name
    error = refused(["train", "--resume", run, "--max-env-steps", "300"], root, capsys)
    assert "this checkpoint does not fit" in error


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("progress.epoch", -5),
        ("progress.env_steps", 7),
        ("progress.passed_test", {"mean": 1}),
        ("agent.update_credit", 1e12),
        ("agent.learn_rng.state.inc", -1),
        ("agent.policy.epsilon", "x"),
        ("collector.returns", ["x"]),
        ("collector.restarted_at", -1),
        ("collector.n_episodes", None),
        ("replay.memory.n_added", 10**9),
        ("replay.segments", {}),
        ("replay.segments", [{"file": "../x"}]),
    ],
)
def test_a_forged_state_is_refused_and_changes_nothing(
    root: Path, place: str, value: Any, capsys: Any
) -> None:
    folder = last(root, "dqn")
    state = json.loads((folder / "state.json").read_text())
    *path, name = place.split(".")
    inner = state
    for part in path:
        inner = inner[part]
    assert name in inner
    inner[name] = value
    (folder / "state.json").write_text(json.dumps(state))
    damage.sign(folder)
    run = folder.parents[1]
    before = {p: p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
    refused(["train", "--resume", run.name, "--max-env-steps", "300"], root, capsys)
    after = {p: p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
    after.pop(run / ".lock", None)
    assert after == {p: data for p, data in before.items() if p.name != ".lock"}


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("actions", ("U8", 9), "actions that are not in Discrete"),
        ("reward", ("U8", 1), "expected row 0 and shapes"),
        ("reward", ("BF16", 0), "cannot be read"),
    ],
)
def test_forged_replay_rows(
    root: Path, name: str, form: tuple[str, int], message: str, capsys: Any
) -> None:
    folder = last(root, "dqn").resolve()
    run = folder.parents[1]
    state = json.loads((folder / "state.json").read_text())
    for entry in state["replay"]["segments"]:
        file = run / "replay" / entry["file"]
        tensors = damage.read_safetensors(file)
        shape, (dtype, value) = tensors[name][1], form
        data = bytes([value]) * (shape[0] * shape[1] * damage.WIDTHS[dtype])
        damage.write_safetensors(file, {**tensors, name: (dtype, shape, data)})
        entry |= damage._fingerprint(file.read_bytes())
    (folder / "state.json").write_text(json.dumps(state))
    damage.sign(folder)
    error = refused(["train", "--resume", run.name, "--max-env-steps", "300"], root, capsys)
    assert message in error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_damaged_runs(templates: list[Path], tmp_path: Path, seed: int) -> None:
    figures = fuzz.campaign(templates, trials=55, seed=100 + seed, work=tmp_path)
    assert figures.failures == []
    assert figures.trials > 45


def test_a_sample_of_the_campaign(templates: list[Path], tmp_path: Path) -> None:
    """The whole one: python -m tests.runs.fuzz --trials 5000."""
    figures = fuzz.campaign(templates, trials=60, seed=3, work=tmp_path, quick=True)
    assert figures.failures == []
    assert figures.trials > 50
