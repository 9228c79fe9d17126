"""`gsolve check`: every problem of every file, with its line."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gsolve

MESSY = """\
env_id: CartPole-v1
n_envs: 0
_base: {n_steps: sixteen}
env_wrappers:
  - {id: ObservationScal}
  - id: RewardScale
    scael: 2
    scale: big
  - {id: ObservationScale, scale: 2}
spec:
  action_space: {lables: [left, right]}

ppo:
  polcy_lr: 1e-3
  batch_size: 64

ppo_long:
  n_envs: 8
  max_env_steps: null

dqn:
  algo_id: dqnn

typo_block:
  algo_id: ppo
  clip_rnage: 0.2
"""
CLASHES = """\
env_id: CartPol-v1
plugins: [no_such_module]
observers: [nobody]
env_wrappers: [{id: RewardScale, scale: 2}, {id: FrameSkip, skip: 2}]
ppo:
  max_env_steps: null
  policy_lr: -1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_CONFIGS", raising=False)
    Path("configs").mkdir()
    return tmp_path


def lines_of(found: Any) -> dict[str, int | None]:
    return {problem["text"]: problem["line"] for problem in found["problems"]}


def at(lines: dict[str, int | None], start: str) -> int | None:
    """The line of the one problem whose text begins so."""
    (line,) = [line for text, line in lines.items() if text.startswith(start)]
    return line


def test_all_problems_of_a_file_with_their_lines(gsolve: Gsolve) -> None:
    Path("configs/Messy.yaml").write_text(MESSY)
    found = gsolve.json("check", code=1)
    assert (found["files"], found["configs"]) == (1, 4)
    lines = lines_of(found)
    for start, line in {
        "n_envs: got 0": 2,
        "n_steps: got 'sixteen'": 3,
        "env_wrappers: Unknown env wrapper 'ObservationScal'. Did you mean ObservationScale": 5,
        "env_wrappers: Wrapper RewardScale: unknown option 'scael'. Did you mean scale?": 7,
        "env_wrappers: Wrapper RewardScale: scale must be a number": 8,
        "spec.action_space.lables: unknown key. Did you mean labels?": 11,
        "polcy_lr: unknown field. Did you mean policy_lr?": 14,
        "max_env_steps and max_epochs are both null": 19,
        "algo_id: unknown algorithm 'dqnn'": 22,
        "clip_rnage: unknown field. Did you mean clip_range?": 26,
    }.items():
        assert at(lines, start) == line, start
    assert len(lines) == 10
    by_text = {problem["text"][:12]: problem["variants"] for problem in found["problems"]}
    assert by_text["env_wrappers"] == [], "shared lines are named once, for the file"
    assert by_text["polcy_lr: un"] == ["ppo"]

    shown = gsolve("check", code=1).splitlines()
    assert f"{Path('configs/Messy.yaml')}:14: ppo: polcy_lr: unknown field." in "\n".join(shown)
    assert shown[-1] == "10 problems in 1 file; checked 4 configs in 1 file"


def test_what_a_config_names_is_looked_up(gsolve: Gsolve) -> None:
    Path("configs/Clashes.yaml").write_text(CLASHES)
    found = gsolve.json("check configs/Clashes.yaml configs --trust", code=1)
    lines = lines_of(found)
    assert found["files"] == 1, "a file that is named twice is checked once"
    for start, line in {
        "env_id: Unknown environment 'CartPol-v1'. Did you mean CartPole-v1": 1,
        "plugins: cannot import 'no_such_module'": 2,
        "observers: unknown observer 'nobody'": 3,
        "env_wrappers: FrameSkipWrapper must come first": 4,
        "max_env_steps and max_epochs are both null": 6,
        "policy_lr: got -1": 7,
    }.items():
        assert at(lines, start) == line, start
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("env_id: A\nenv_id: B\n", 2, "the key 'env_id' is given twice"),
        ("env_id: [1\n", 2, "expected ',' or ']'"),
        ("- 1\n", None, "expected a block"),
        ("", None, "it is empty"),
        ("env_id: CartPole-v1\n", None, "algo_id: not given, expected one of"),
    ],
)
def test_files_that_are_no_configs(
    text: str, line: int | None, message: str, gsolve: Gsolve
) -> None:
    Path("configs/Odd.yaml").write_text(text)
    (problem,) = gsolve.json("check", code=1)["problems"]
    assert message in problem["text"]
    assert problem["line"] == line
    assert "Odd" not in problem["text"], "the path is named once"


def test_templates_and_good_files_pass(gsolve: Gsolve) -> None:
    Path("configs/good.yaml").write_text(
        "env_id: ${env}\n_shared: &shared {n_steps: 32}\n"
        "ppo: {<<: *shared, policy_lr: ${lr}, batch_size: 32}\n"
    )
    Path("configs/merged.json").write_text('{"env_id": "CartPole-v1", "ppo": {"n_stepz": 3}}')
    assert gsolve.json("check configs/good.yaml")["problems"] == []
    assert gsolve("check configs/good.yaml") == "1 config in 1 file: no problems\n"
    assert [problem["line"] for problem in gsolve.json("check", code=1)["problems"]] == [1]


def test_bad_paths(gsolve: Gsolve) -> None:
    Path("notes.txt").write_text("x")
    Path("empty").mkdir()
    for path, message in (
        ("nowhere", "there is no file, folder or config nowhere"),
        ("notes.txt", "config files end in .yaml"),
        ("empty", "no config files in empty"),
    ):
        assert message in gsolve("check", path, code=2)


def test_a_config_is_checked_by_its_name(gsolve: Gsolve) -> None:
    assert "in 1 file: no problems" in gsolve("check CartPole-v1:ppo")


def test_the_shipped_configs_are_checked_without_a_folder_of_ones_own(gsolve: Gsolve) -> None:
    found = gsolve.json("check")
    assert found["problems"] == []
    assert found["configs"] > 100
