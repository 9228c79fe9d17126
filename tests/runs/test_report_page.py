"""report.html stands alone, shows what happened, and never runs what a run folder says."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.html_page import Line, line_chart, short_number, ticks
from gymnasium_solver.runs.query import get_details
from gymnasium_solver.runs.report import write_report
from gymnasium_solver.runs.run import Run

EVIL = "<script>alert(1)</script>"


def make_run(root: Path, name: str = "ppo", **identity: object) -> Run:
    fields = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": name, "seed": 1, **identity}
    run = Run.create(f"env_id: CartPole-v1\nn_steps: {len(name)}\n", fields, root, ["gsolve"])
    for i in range(3):
        run.log_metrics(
            {
                "env_steps": 100 * i,
                "epoch": i,
                "wall_s": 1.0 * i,
                "train/roll/ep_rew/mean": 20.0 * i,
                "val/roll/ep_rew/mean": 30.0 * i,
                "train/opt/policy/entropy": 0.6 - 0.1 * i,
                "train/sys/timing/env_share": 0.25,
            }
        )
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
    run = make_run(tmp_path, variant=EVIL, changed=changed)
    (run.videos_dir / "best.mp4").write_bytes(b"video")
    write_report(run.path)
    text = run.page_path.read_text()
    assert {"svg", "video", "table", "polyline"} <= check_page(text)
    for part in (
        "entropy_collapse",
        "--ent-coef 0.01",
        "policy_lr",
        "0.01",
        "25.0%",
        "data:video/mp4",
    ):
        assert part in text, part
    markdown = run.report_path.read_text()
    for part in (
        "## Alerts",
        "| `policy_lr` | 0.001 | 0.01 |",
        "videos/best.mp4",
        "| env | 25.0% |",
    ):
        assert part in markdown, part


def test_large_video_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium_solver.runs.report.LARGEST_VIDEO", 3)
    run = make_run(tmp_path)
    (run.videos_dir / "best.mp4").write_bytes(b"video")
    write_report(run.path)
    assert 'src="videos/best.mp4"' in run.page_path.read_text()


def test_page_of_an_empty_run(tmp_path: Path) -> None:
    run = Run.create("env_id: X\n", {"env_id": "X", "algo_id": "ppo"}, tmp_path)
    write_report(run.path)
    assert "No metrics are logged yet" in run.page_path.read_text()
    check_page(run.page_path.read_text())


def test_several_runs_on_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(tmp_path / "runs", name) for name in ("ppo", "ppo_wide")]
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


def test_report_to_an_impossible_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "a.html"
    assert main(["report", run.id, "--runs-dir", str(run.path.parent), "-o", str(target)]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_facts_of_a_damaged_difference(tmp_path: Path) -> None:
    run = make_run(tmp_path, changed={"a": 1, "b": [1, 2], "c": [1]})
    assert get_details(run).changed == {"b": (1, 2)}


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0, 10, [0, 2, 4, 6, 8, 10]), (-1, 1, [-1, -0.5, 0, 0.5, 1])]
)
def test_ticks(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 5) == pytest.approx(expected)


def test_short_numbers() -> None:
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
