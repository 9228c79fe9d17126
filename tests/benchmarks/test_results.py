"""The published tables: made from the raw figures, solved by the held-out test."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import learning, rewrite
from gymnasium_solver.bench import harness

RESULTS = rewrite.results()


@pytest.mark.parametrize("name", [name for name in RESULTS if name not in rewrite.BY_HAND])
def test_the_table_is_up_to_date(name: str) -> None:
    written = (rewrite.RESULTS / f"{name}.md").read_text()
    assert written == rewrite.page(RESULTS[name]), "run: python -m benchmarks.rewrite"


def run(score: float | None, threshold: float | None = 475.0, **more: Any) -> dict[str, Any]:
    base = {"config": "CartPole-v1:ppo", "seed": 1, "command": "gsolve train", "wall_s": 3.0}
    # The validation reached 500: that chooses a checkpoint, it does not judge it.
    validated = {"solved_env_steps": 9_000, "val": [[9_000, 500.0]]}
    return base | validated | {"score": score, "threshold": threshold} | more


@pytest.mark.parametrize(
    ("score", "threshold", "solved"),
    [(475.0, 475.0, True), (471.3, 475.0, False), (None, 475.0, False), (500.0, None, False)],
)
def test_a_seed_is_solved_by_its_held_out_test(
    score: float | None, threshold: float | None, solved: bool
) -> None:
    assert learning.is_solved(run(score, threshold)) is solved


def test_the_table_counts_solved_seeds_by_their_tests_and_tells_failures() -> None:
    failed = {"config": "CartPole-v1:ppo", "seed": 3, "command": "gsolve train --seed 3"}
    runs = [run(500.0), run(471.3, solved_env_steps=20_000), failed | {"error": "exit code 1"}]
    text = learning.markdown(harness.header("x") | {"runs": runs})
    assert "| 475 | 1 of 3 | 9,000 |" in text
    assert "--seed 3: exit code 1" in text


@pytest.mark.parametrize(
    ("command", "commit", "reasons"),
    [
        ("python -m benchmarks.gpu", "abc1234", []),
        ("python -m benchmarks.gpu --quick", "abc1234", ["a --quick pass"]),
        ("gsolve bench", "abc1234+changes", ["uncommitted changes"]),
        ("gsolve bench", None, ["the commit is unknown"]),
    ],
)
def test_what_must_not_be_published_says_so(
    command: str, commit: str | None, reasons: list[str]
) -> None:
    result = harness.header(command)
    result["versions"]["commit"] = commit
    assert harness.unpublishable(result) == reasons
    assert ("**not for publishing**" in harness.describe(result)) is bool(reasons)


def test_a_copy_without_git_is_told_its_commit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    assert harness.versions()["commit"] is None
    monkeypatch.setenv("BENCH_COMMIT", "abc1234")
    assert harness.versions()["commit"] == "abc1234"


def test_the_readme_quotes_no_unpublishable_result() -> None:
    readme = (Path(rewrite.ROOT) / "README.md").read_text()
    for name, result in RESULTS.items():
        if "parts" not in result and harness.unpublishable(result):
            assert f"results/{name}." not in readme, f"{name} is not for publishing"
