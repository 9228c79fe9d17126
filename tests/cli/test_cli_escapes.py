"""Text from the files of a run never reaches the terminal, a report or JSON as a control code."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from gymnasium_solver.cli import main as cli
from gymnasium_solver.cli.output import SafeConsole
from gymnasium_solver.printable import escaped, markdown_text, printable, printable_lines
from gymnasium_solver.runs.report import write_report
from gymnasium_solver.runs.run import Run

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202etxt\rx\n\u2066"
CONTROL = {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}
CONTROL |= set("\u202e\u2066\u2028\u061c")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    identity = {"env_id": f"Env{EVIL}", "algo_id": f"ppo{EVIL}", "variant": EVIL, "seed": 1}
    with Run.create("env_id: x\nalgo_id: ppo\n", identity, tmp_path / "runs") as run:
        for env_steps in (1, 2):
            row = {"env_steps": env_steps, "epoch": 1, "wall_s": 1.0, f"loss{EVIL}": env_steps}
            run.log_metrics(row)
        run.log_event("eval", env_steps=1, mean=1.0, greedy=True, stage="val", note=EVIL)
        meta = {"stop_reason": EVIL, "stop_detail": f"|[x](http://y)<b>{EVIL}", "created_at": EVIL}
        run.update_meta(status="failed", command=["```", EVIL], git={"commit": f"`{EVIL}"}, **meta)
        run.log_path.write_text(EVIL)
    return run


def shown(capsys: Any) -> str:
    out, err = capsys.readouterr()
    assert not CONTROL & set(out + err), (out, err)
    return str(out + err)


def test_nothing_printed_has_control_characters(run: Run, capsys: Any) -> None:
    shows: tuple[list[str], ...] = ([], ["--log", "5"], ["--metrics"], ["--csv"])
    for argv in (["runs"], *(["run", "@last", *show] for show in shows)):
        assert cli.main(argv) == 0
        assert shown(capsys)
    assert cli.main(["plot", "@last", "--metric", f"lost{EVIL}"]) == 2
    assert "Did you mean loss" in shown(capsys)
    assert cli.main(["plot", "@last", "--metric", "loss"]) == 0
    assert cli.main(["eval", "@last"]) == 2
    shown(capsys)


@pytest.mark.parametrize("argv", [["\x1b[31mx"], ["train", "\x1b]0;title\x07"], ["run", "\x9b31m"],
                                  ["runs", "--\x1b[2J"], ["help", "\x1bx"]])  # fmt: skip
def test_what_was_typed_is_not_repeated_raw(argv: list[str], run: Run, capsys: Any) -> None:
    assert cli.main(argv) == 2
    assert shown(capsys)


def test_json_has_the_text_escaped(run: Run, capsys: Any) -> None:
    assert cli.main(["run", "@last", "--json"]) == 0
    found = json.loads(shown(capsys))
    assert [event["note"] for event in found["evals"]] == [EVIL]
    assert cli.main(["run", "@last", "--log", "9", "--json"]) == 0
    assert "\x1b[2J" in json.loads(shown(capsys))[0]


def test_a_folder_with_an_escape_in_its_name(run: Run, capsys: Any) -> None:
    run.path.rename(run.path.with_name("a\x1b[31mb-20260101-000000-aaaa"))
    for argv in (["runs"], ["run", "20260101"], ["run", "nothing-like-it"], ["plot", "2026"]):
        cli.main(argv)
        assert "[31mb" in shown(capsys)


def test_the_report_shows_text_as_text(run: Run) -> None:
    text = write_report(run.path).read_text()
    assert not CONTROL & set(text)
    assert r"\[x\](http://y)&lt;b&gt;" in text
    assert "````\n'```' " in text  # a fence longer than what it holds
    assert text.count("````") == 2


def test_odd_titles_are_drawn_as_text(run: Run, capsys: Any) -> None:
    run.update_meta(env_id=r"$\frac{", variant="_^{")
    assert cli.main(["plot", "@last", "--metric", "loss"]) == 0
    assert (run.path / "curves.png").stat().st_size > 1000


def test_what_is_left_of_a_text() -> None:
    assert printable("a\tb\nc\x1b[1md") == "abc[1md"
    assert printable_lines("a\nb\x1b[1mc") == "a\nb[1mc"
    assert printable("é → 日本 ★") == "é → 日本 ★"
    assert json.loads(escaped(json.dumps(EVIL, ensure_ascii=False))) == EVIL
    assert markdown_text("a|b\nc") == r"a\|b c"


def test_styles_of_our_own_stay() -> None:
    console = SafeConsole(file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.assemble(("red\x1b[2J", "red"), "\nnext"))
    assert console.file.getvalue() == "\x1b[31mred[2J\x1b[0m\nnext\n"  # type: ignore[attr-defined]
