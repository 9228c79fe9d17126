"""report.md tells what a reader of the folder wants to know; report.html stands alone, shows what
happened, and never runs what a run folder says."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.html_page import Line, line_chart, short_number, ticks
from gymnasium_solver.runs.query import get_details
from gymnasium_solver.runs.report import write_report
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import ScoreText, disagreement

TEST = {"mean": 500.0, "stderr": 0.0, "episodes": 100, "greedy": True}
EVAL = {"std": 12.25, "min": 450, "max": 500, "length_mean": 480.5, "episodes": 20}
COMMAND = ["gsolve", "train", "CartPole-v1:ppo", "--description", "two words"]


def make_run(root: Path) -> Run:
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 42}
    yaml = "env_id: CartPole-v1\ndescription: Balance a | pole\n"
    return Run.create(yaml, identity, root, COMMAND)


def test_report_of_a_solved_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    run.log_event("eval", stage="val", env_steps=51200, mean=480.5, **EVAL)
    run.log_event("eval", env_steps=102400, mean=None, std=None)
    test = {"stage": "test", "env_steps": 51200, "episodes": 100}
    failed = {**test, "stage": "failed_test", "env_steps": 25600}
    run.log_event("eval", **failed, greedy=True, mean=471.25, std=31.0, stderr=3.1)
    run.log_event("eval", **test, greedy=True, mean=500.0, std=0.0, stderr=0.0)
    run.log_event("eval", **test, greedy=False, mean=487.125, std=3.5, stderr=0.35)
    save_checkpoint(run.checkpoints_dir, 51200, {}, {}, {"score": 480.5}, best=True)
    run.update_meta(
        status="finished", stop_reason="solved", solved=True, test=TEST, threshold=475.0,
        env_steps=102400, epoch=100, episodes=1234, wall_s=20.0,
        best={"score": 480.5, "env_steps": 51200, "epoch": 50},
        resumed=[{"at": "2026-01-01T00:00:00+00:00", "from_env_steps": 25600}],
        git={"commit": "abc123", "dirty": True},
    )  # fmt: skip
    path = write_report(run.path)
    assert path == run.path / "report.md"
    text = path.read_text()
    for part in (
        "# CartPole-v1:ppo: solved",
        f"Run `{run.id}`",
        "Balance a \\| pole",
        "| stopped because | a held-out test reached the threshold |",
        "| best validation | 480.5 at 51,200 |",
        "| threshold | 475 |",
        "| env steps | 102,400 |",
        "| episodes | 1,234 |",
        "| env steps per second | 5,120 |",
        "| test, greedy actions | 500.0 ± 0.0 (standard error, 100 episodes) |",
        "| test, sampled actions | 487.1 ± 0.3 (standard error, 100 episodes) |",
        "## Failed tests",
        "| 25,600 | 471.2 | 31.0 |",
        f"gsolve train runs/{run.id}/config.yaml",
        "gsolve train CartPole-v1:ppo --description 'two words'",
        "The seed is 42.",
        "gymnasium_solver 0.",
        "Git commit `abc123`, with the changes in `git.diff`.",
        "Resumed from env steps 25,600.",
        "| 51,200 | 480.5 | 12.2 | 450.0 | 500.0 | 480.5 | 20 |",
        "| 102,400 | - | - | - | - | - | - |",
        "| 51200 | 480.5 | @best @last |",
        "| `config.yaml` |",
        f"gsolve eval {run.id}",
        f"gsolve train --resume {run.id}  # trains on to its budget\n",
    ):
        assert part in text, part
    assert text.count("| 51,200 |") == 3, "the validation and two tests"
    assert str(tmp_path) not in text


def test_report_of_a_run_that_hardly_began(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.update_meta(status="interrupted", stop_reason="interrupted")
    text = write_report(run.path).read_text()
    assert "# CartPole-v1:ppo: interrupted" in text
    assert "## Validation\n\nNone." in text
    assert "Failed tests" not in text
    assert "| best validation | - |" in text
    assert "gsolve eval" not in text
    assert "--resume" not in text


def test_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.update_meta(status="failed", stop_reason="diverged", threshold=475.0)
    assert "a value was not finite" in write_report(run.path).read_text()
    run.update_meta(status="finished", stop_reason="max_env_steps", solved=False)
    text = write_report(run.path).read_text()
    assert "# CartPole-v1:ppo: not solved" in text
    assert "not finite" not in text
    run.update_meta(status="interrupted", stop_reason="interrupted", solved=True, test=TEST)
    assert "# CartPole-v1:ppo: interrupted, solved" in write_report(run.path).read_text()


def test_scores_have_the_decimals_that_their_scale_calls_for() -> None:
    frozen_lake = ScoreText(0.7)
    assert [frozen_lake(x) for x in (0.74, 0.0032, 1.0, -1e-9, None)] == [
        "0.740", "0.003", "1.000", "0.000", "-",
    ]  # fmt: skip
    assert frozen_lake.threshold == "0.7"
    assert ScoreText(9.44444).threshold == "9.44"
    assert ScoreText(9.44444).spread(9.5, 1) == "9.50 ± 1.00"
    assert (ScoreText(475)(9.34), ScoreText(475).threshold) == ("9.3", "475")
    assert ScoreText(-1000.0).threshold == "-1,000"
    assert ScoreText(None, [-1234.56, 3.0])(3.0) == "3.0"
    assert ScoreText(None, 0.0123)(0.0123) == "0.0123"
    assert (ScoreText(None)(0.0), ScoreText(None).threshold) == ("0.0", "-")
    assert ScoreText(0.0, 2.5)(2.5) == "2.50"
    assert ScoreText(None, math.inf)(math.nan) == "-"


GREEDY = {"greedy": True, "mean": 500.0, "stderr": 0.0, "min": 500.0, "max": 500.0}
SAMPLED = {"greedy": False, "mean": 140.0, "stderr": 9.2, "min": 20.0, "max": 400.0}


def test_greedy_and_sampled_scores_that_disagree_are_explained() -> None:
    told = disagreement([GREEDY, SAMPLED])
    assert told
    assert "greedy actions score more than sampled ones" in told
    assert told.endswith("judged by greedy actions")
    stuck = disagreement([{**SAMPLED, "mean": 400.0}, {**GREEDY, "mean": 20.0}])
    assert stuck
    assert "the most likely action alone gets stuck" in stuck
    assert stuck.endswith("judged by sampled actions")


@pytest.mark.parametrize(
    "sampled",
    [
        {"mean": 470.0},  # less than a tenth of the range
        {"mean": 420.0, "stderr": 45.0},  # less than two standard errors
        {"stderr": None},  # one episode
    ],
)
def test_scores_that_do_not_clearly_differ_are_not_explained(sampled: dict[str, Any]) -> None:
    assert disagreement([GREEDY, {**SAMPLED, **sampled}]) is None
    assert disagreement([GREEDY]) is None


def test_the_report_explains_the_newest_tests(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for sampled in (499.0, 140.0):  # a resumed run is tested again
        for test in (GREEDY, {**SAMPLED, "mean": sampled}):
            run.log_event("eval", stage="test", env_steps=5, episodes=100, std=1.0, **test)
    run.update_meta(status="finished", solved=True, threshold=475.0, test=TEST)
    text = write_report(run.path).read_text()
    assert "\n\nGreedy actions score more than sampled ones: " in text
    assert text.count("| test, sampled actions |") == 1
    assert "| test, sampled actions | 140.0 ± 9.2" in text


# -- report.html -----------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script>"


def drawn_run(root: Path, name: str = "ppo", **identity: object) -> Run:
    fields = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": name, "seed": 1, **identity}
    run = Run.create(f"env_id: CartPole-v1\nn_steps: {len(name)}\n", fields, root, ["gsolve"])
    for i in range(3):
        clock = {"env_steps": 100 * i, "epoch": i, "wall_s": 1.0 * i}
        scores = {"train/roll/ep_rew/mean": 20.0 * i, "val/roll/ep_rew/mean": 30.0 * i}
        more = {"train/opt/policy/entropy": 0.6 - 0.1 * i, "train/sys/timing/env_share": 0.25}
        run.log_metrics(clock | scores | more)
    run.log_event("eval", stage="val", env_steps=200, mean=60.0, std=1.0, episodes=20, greedy=True)
    alert = {"name": "entropy_collapse", "text": EVIL, "meaning": "m", "advice": "--ent-coef 0.01"}
    run.log_event("alert", env_steps=100, **alert)
    return run


class Tags(HTMLParser):
    """Every tag is closed, and nothing is loaded from elsewhere."""

    VOID = ("meta", "br", "img", "line", "circle", "polyline", "polygon")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href"):
                assert not str(value).startswith("http"), value
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def check_page(text: str) -> set[str]:
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "script" not in tags.seen
    assert EVIL not in text
    return tags.seen


def test_page_of_a_run(tmp_path: Path) -> None:
    changed = {"policy_lr": [0.001, 0.01]}
    run = drawn_run(tmp_path, variant=EVIL, changed=changed)
    (run.videos_dir / "best.mp4").write_bytes(b"video")
    write_report(run.path)
    text = run.page_path.read_text()
    assert {"svg", "video", "table", "polyline"} <= check_page(text)
    shown = ("entropy_collapse", "--ent-coef 0.01", "policy_lr", "0.01", "25.0%", "data:video/mp4")
    assert [part for part in shown if part not in text] == []
    markdown = run.report_path.read_text()
    parts = ("## Alerts", "| `policy_lr` | 0.001 | 0.01 |", "videos/best.mp4", "| env | 25.0% |")
    assert [part for part in parts if part not in markdown] == []


def test_values_and_td_errors_of_a_replay_are_drawn(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    write_report(run.path)
    assert "TD errors" not in run.page_path.read_text()
    for i in (3, 4):
        clock = {"env_steps": 100 * i, "epoch": i, "wall_s": 1.0 * i}
        values = {f"train/opt/q/percentile/{p}": float(i) for p in ("05", "50", "95")}
        errors = {"train/opt/td_error/mean": 0.1 * i, "train/opt/td_error/std": 1.0}
        run.log_metrics(clock | values | errors)
    write_report(run.path)
    text = run.page_path.read_text()
    check_page(text)
    assert "TD errors" in text
    assert "Q-values" in text


def test_large_video_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium_solver.runs.report.LARGEST_VIDEO", 3)
    run = drawn_run(tmp_path)
    (run.videos_dir / "best.mp4").write_bytes(b"video")
    write_report(run.path)
    assert 'src="videos/best.mp4"' in run.page_path.read_text()


def test_page_of_an_empty_run(tmp_path: Path) -> None:
    run = Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, tmp_path)
    write_report(run.path)
    assert "No metrics are logged yet" in run.page_path.read_text()
    check_page(run.page_path.read_text())


def test_several_runs_on_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [drawn_run(tmp_path / "runs", name) for name in ("ppo", "ppo_wide")]
    page = tmp_path / "out" / "both.html"
    refs = [run.id for run in runs]
    assert main(["report", *refs, "--runs-dir", str(tmp_path / "runs"), "-o", str(page)]) == 0
    text = page.read_text()
    check_page(text)
    assert all(ref in text for ref in refs)
    assert re.search(r"<td>n_steps</td><td>3</td><td>8</td>", text)
    assert capsys.readouterr().out.strip() == str(page)


def test_report_refuses_other_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "x", "-o", "a.pdf", "--runs-dir", str(tmp_path)]) == 2
    assert "an .html or .md file" in capsys.readouterr().err


def test_facts_of_a_damaged_difference(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, changed={"a": 1, "b": [1, 2], "c": [1]})
    assert get_details(run).changed == {"b": (1, 2)}


def test_ticks_and_their_labels() -> None:
    assert ticks(0, 10, 5) == pytest.approx([0, 2, 4, 6, 8, 10])
    assert ticks(-1, 1, 5) == pytest.approx([-1, -0.5, 0, 0.5, 1])
    assert [short_number(x) for x in (1_500_000, 2000, 0.0003)] == ["1.5M", "2k", "0.0003"]


def test_chart_keeps_extremes_of_long_curves() -> None:
    points = [(float(x), 1000.0 if x == 5003 else 0.0) for x in range(10_000)]
    chart = line_chart([Line("x", points, "red")])
    (coordinates,) = re.findall(r'polyline points="([^"]+)"', chart)
    ys = [float(pair.split(",")[1]) for pair in coordinates.split()]
    assert len(ys) < 1000
    assert min(ys) < 40 < 200 < max(ys)


def test_chart_without_finite_values_is_empty() -> None:
    assert line_chart([Line("x", [(0.0, None), (1.0, float("nan"))], "red")]) == ""
