"""Mistakes in the verbs that show agents are told in one line."""

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.run import Run

WHOLE = "expected a whole number of at least"
MISTAKES = {
    "play": [
        ("@last --mode robot", "--mode robot: expected one of trained, random, user"),
        ("@last --record a.txt", "--record a.txt: expected a name in .npz, .mp4"),
        ("@last --episodes x", f"--episodes x: {WHOLE} 1"),
        ("CartPole-v1 --mode user --text", "--mode user needs a window or a terminal"),
        ("CartPole-v1 --mode trained --text", "a config has no trained agent"),
        ("nothing --text", "there is no run 'nothing'"),
    ],
    "video": [
        ("@last --grid 5x5", "--grid 5x5: expected rows x columns of 1 to 16 tiles, such as 4x4"),
        ("@last --grid 2x2 --episodes 9", "--episodes 9: a grid of 2x2 holds 4"),
        ("@last --episodes 0", f"--episodes 0: {WHOLE} 1"),
        ("@last --fps x", "--fps x: expected a number above 0"),
        ("@last --out a.avi", "a.avi: expected a name that ends in .mp4, .gif, .webp"),
        ("@last --seed soon", "seed 'soon': expected test, val, train or a number"),
        ("@last --deterministic --sampled", "exclude each other"),
        ("@last --env-kwargs length", "--env-kwargs takes KEY=VALUE, but was given 'length'"),
        ("@last --gird 2x2", "unknown flag '--gird'. Did you mean --grid?"),
    ],
    "inspect": [
        ("@last --branch x", "EPISODE:STEP:ACTION"),
        ("@last --branch ffff:1:0", "no episode 'ffff'"),
        ("@last --episodes 0", f"{WHOLE} 1"),
        ("@last --max-steps 900000", "expected 1 to"),
        ("@last --episode nope", "no episode"),
    ],
    "explain": [
        ("@last --method scorcam", "Did you mean scorecam?"),
        ("@last --step -1", f"--step -1: {WHOLE} 0"),
        ("@last --target valu", "Did you mean value?"),
    ],
}


@pytest.mark.parametrize(
    ("verb", "words", "message"),
    [(verb, *mistake) for verb, mistakes in MISTAKES.items() for mistake in mistakes],
)
def test_a_mistake_is_told_in_one_line(
    verb: str, words: str, message: str, shared_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *words.split(), "--runs-dir", str(shared_run.path.parent)]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
