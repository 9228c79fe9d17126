"""Bad input to the verbs: one line that names what was given, what is expected and the fix."""

from pathlib import Path

import pytest

from gymnasium_solver.cli.main import main


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
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
        ("export @last --format foo", "--format foo: expected one of onnx, c"),
        ("sweep CartPole-v1:ppo --trials abc", "--trials abc: expected a whole number"),
        ("sweep CartPole-v1:ppo --sampler foo", "sampler: got 'foo', expected one of 'auto'"),
        ("jobs foo", "gsolve jobs: foo: expected one of list, logs, cancel"),
        ("set", "the following arguments are required: RUN. See gsolve set --help"),
        ("tag", "the following arguments are required: RUN. See gsolve tag --help"),
    ],
)
def test_bad_input_gets_one_line(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) <= 2  # those of a config name it first


def test_words_may_follow_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse alone refuses `set RUN --at 5 FIELD=VALUE`: the flag ends the list of words."""
    assert main(["set", "nope", "--at", "5", "policy_lr=1e-4"]) == 2
    assert "there is no run 'nope'" in capsys.readouterr().err
    assert main(["runs", "--limit", "5", "CartPole", "--json", "seed=1"]) == 0
    assert main(["set", "nope", "--at", "5", "policy_lr=1", "--nope", "3"]) == 2
    assert "unknown flag '--nope'" in capsys.readouterr().err
