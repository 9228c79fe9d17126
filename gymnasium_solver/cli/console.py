"""Output of `gsolve train` during a run: an observer of the training loop.

On a terminal it shows a live dashboard; in a file or a pipe, one plain line per evaluation or every
few seconds; with `quiet`, only the start, the result and the path. All output is also written to
the run's `run.log`, without colours. Used as a context manager, so that the terminal is always
restored.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.dashboard import ORANGE, SKY, Dashboard, Line, State
from gymnasium_solver.cli.summary import broken_off, quiet_result, result
from gymnasium_solver.runs.words import ScoreText
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.signals import PREEMPTED

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.runs.alert import Alert
    from gymnasium_solver.runs.query import RunSummary
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.observer import EvalResult, TrainInfo

SHORTEST_REFRESH_S, LONGEST_REFRESH_S = 1 / 8, 2.0
COST = 0.01  # after a refresh, pause for at least its own time / COST
LINE_EVERY_S = 5.0


class TrainConsole(Observer):
    """Observer of one training. `quiet`, and whether `console` is a terminal, select the output."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
        runs_dir: str | None = None,
        console: Console | None = None,
    ) -> None:
        self.console = console or Console(highlight=False)
        self.quiet = quiet
        self.notes = notes
        self.warnings = warnings
        """Printed before the dashboard is drawn, so that they stay visible."""
        self.runs_dir = runs_dir
        """Value of the --runs-dir flag, if given; the suggested commands include it."""
        self.exit_code = 1
        """Exit code of the command: 1 until the run has ended normally."""
        self.live: Live | None = None
        self.state: State | None = None
        self.run: Run | None = None
        self._pending: list[dict[str, Any]] = []
        self._next_refresh_s = 0.0
        self._next_line_s = 0.0
        self._seen_s = 0.0

    def __enter__(self) -> "TrainConsole":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_live()
        if error is not None and self.run is not None:
            self._say(*broken_off(self.run, self.runs_dir))
            self._log(f"{type(error).__name__}: {error}")

    # --- the observer

    def on_start(self, run: "Run", config: "Config", info: "TrainInfo") -> None:
        self.run = run
        name = f"{config.env_id}:{config.variant or config.algo_id}"
        self.state = State(
            run_id=run.id,
            name=name,
            header=header(config, info),
            max_env_steps=None if _ends_by_epochs(config, info) else config.max_env_steps,
            planned_epochs=info.planned_epochs,
            threshold=info.threshold,
        )
        if info.resumed_from:
            steps = self.state.max_env_steps or info.planned_epochs * config.n_envs * config.n_steps
            self.state.start_steps = info.resumed_from
            self.state.start_fraction = info.resumed_from / steps
            if best := run.meta().get("best"):
                self.state.best["val/roll/ep_rew/mean"] = best["score"]
        self._next_line_s = time.monotonic() + LINE_EVERY_S
        self._say(*(Text(f"warning: {warning}", style=ORANGE) for warning in self.warnings))
        if self.quiet:
            with_notes = f", with {', '.join(self.notes)}" if self.notes else ""
            self._say(f"{name}: training for {_budget(config, info)}, run {run.id}{with_notes}")
        elif self.console.is_terminal and not self.console.is_dumb_terminal:
            self._log(f"{name}  {run.id}", *_header_lines(self.state))
            self.live = Live(
                Dashboard(self.state),
                console=self.console,
                auto_refresh=False,
                vertical_overflow="crop",
                redirect_stdout=True,
                redirect_stderr=True,
            )
            self.live.start(refresh=True)
        else:
            self._say(Text.assemble((name, "bold"), "  ", (run.id, SKY)))
            self._say(*_header_lines(self.state))
        for note in (*self.notes, *info.notes):
            self.on_message("info", note)

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._pending.append(row)
        now_s = self._seen_s = time.monotonic()
        if self.live is not None and now_s >= self._next_refresh_s:
            self._refresh(self.live)
        if now_s >= self._next_line_s:
            self._progress_line()

    def on_eval(self, result: "EvalResult", is_best: bool) -> None:
        self._digest().add_eval(result)
        text = self._score(result.mean).spread(result.mean, result.std)
        self._remember(
            [
                (f"{time.strftime('%H:%M:%S')}  ", "bright_black"),
                (f"val at {fmt.number(result.env_steps)}: ", "none"),
                (text, "bold"),
                ("  ★ best so far" if is_best else "", ORANGE),
            ]
        )
        self._progress_line(val=text + (" ★" if is_best else ""))

    def on_test(self, result: "EvalResult", required: float) -> None:
        assert self.state is not None, "on_start must be called first"
        score = self._score(result.mean)
        text = f"test at {fmt.number(result.env_steps)}: {score.test(result.score())}"
        threshold = self.state.threshold or 0.0
        if result.mean >= required:
            self.on_message("info", f"{text}, passed")
        elif result.mean < threshold:
            self.on_message("info", f"{text}, below {score.threshold}; training continues")
        else:
            self.on_message(
                "info", f"{text}, a repeated test needs {score(required)}; training continues"
            )

    def on_checkpoint(self, path: Path, kind: str) -> None:
        self._log(f"checkpoint ({kind}): {path}")

    def on_alert(self, alert: "Alert") -> None:
        word = "alert over" if alert.is_over else "alert"
        self.on_message("warning", f"{word}: {alert.name}: {alert.text}")

    def on_message(self, level: str, text: str) -> None:
        colour = {"warning": ORANGE, "error": "red"}.get(level, "none")
        prefix = "" if level == "info" else f"{level}: "
        self._remember(
            [(f"{time.strftime('%H:%M:%S')}  ", "bright_black"), (prefix + text, colour)]
        )
        if self.live is not None or (self.quiet and level == "info"):
            self._log(prefix + text)
        else:
            self._say(Text(prefix + text, style=colour))

    def on_end(self, summary: "RunSummary", final: "dict[str, EvalResult]") -> None:
        self._stop_live()
        self.exit_code = exit_code(summary)
        if self.quiet:
            self._say(*quiet_result(summary, final))
        else:
            self._say(*result(summary, final, self.runs_dir))

    def on_profile(self, table: list[str], trace: Path) -> None:
        self._stop_live()
        self._say("", "where the time went", *table, f"  trace    {trace}")

    # --- output

    def _digest(self) -> State:
        """Process the rows received since the last call."""
        assert self.state is not None, "on_start must be called first"
        for row in self._pending:
            self.state.add_row(row, self._seen_s)
        self._pending.clear()
        return self.state

    def _refresh(self, live: Live) -> None:
        begun_s = time.monotonic()
        self._digest()
        live.refresh()
        ended_s = time.monotonic()
        pause_s = (ended_s - begun_s) / COST
        self._next_refresh_s = ended_s + min(max(SHORTEST_REFRESH_S, pause_s), LONGEST_REFRESH_S)

    def _score(self, score: float | None) -> ScoreText:
        return ScoreText(self.state.threshold if self.state else None, score)

    def _remember(self, line: Line) -> None:
        if self.state is not None:
            self.state.messages.append(line)

    def _progress_line(self, val: str | None = None) -> None:
        """One plain line: always to the log, and to the screen if there is no dashboard."""
        state = self._digest()
        self._next_line_s = time.monotonic() + LINE_EVERY_S
        if not state.row:
            return
        train = state.row.get("train/roll/ep_rew/mean")
        parts = [
            f"{100 * state.fraction():5.1f} %",
            f"{fmt.number(state.row['env_steps']):>10} env steps",
            f"train {self._score(train)(train):>8}",
        ]
        if val is not None:
            parts.append(f"val {val}")
        parts += [
            fmt.steps_per_second(state.steps_per_s()),
            f"{fmt.duration(state.remaining_s())} left",
        ]
        line = "  ".join(parts)
        if self.live is None and not self.quiet:
            self._say(line)
        else:
            self._log(line)

    def _say(self, *lines: str | Text) -> None:
        """Print to the screen and to the log."""
        for line in lines:
            self.console.print(line, soft_wrap=True, markup=False)
        self._log(*lines)

    def _log(self, *lines: str | Text) -> None:
        if self.run is not None:
            self.run.log_text("\n".join(str(line).rstrip() for line in lines))

    def _stop_live(self) -> None:
        if self.live is None:
            return
        if self.state is not None:
            self._digest()
        self.live.refresh()
        self.live.stop()
        self.live = None


def exit_code(summary: "RunSummary") -> int:
    """0 for a run that ended normally or at an observer's request; 75 after SIGTERM ("try again": a
    batch system may resume it); 130 after Ctrl-C."""
    if summary.stop_reason != "interrupted":
        return 0
    return PREEMPTED if summary.stop_detail == "SIGTERM" else 130


def header(config: "Config", info: "TrainInfo") -> list[tuple[str, str]]:
    """Description of the run to start, as (label, text)."""
    spec = info.env_spec
    reason = f" ({spec.engine_reason})" if spec.engine_reason else ""
    aim = ScoreText(info.threshold).threshold
    threshold = "no threshold" if info.threshold is None else f"solved at {aim}"
    lines = [
        ("env", f"{spec.env_id} × {config.n_envs} on {spec.engine}{reason}"),
        (
            "agent",
            f"{config.algo_id} · {info.n_parameters:,} parameters · {info.device}, "
            f"{info.update_mode} · seed {config.seed}",
        ),
        ("budget", f"{_budget(config, info)} · {threshold}"),
    ]
    if info.test_episodes is not None:
        lines.append(("test", f"{info.test_episodes:,} held-out episodes"))
    if info.resumed_from is not None:
        lines.append(("resumed", f"at {info.resumed_from:,} env steps"))
    return lines


def _header_lines(state: State) -> list[Text]:
    return [Text.assemble((f"  {key:<8}", "bright_black"), text) for key, text in state.header]


def _budget(config: "Config", info: "TrainInfo") -> str:
    """The budget that ends the run: epochs or env steps, whichever is reached first."""
    if _ends_by_epochs(config, info):
        return f"{info.planned_epochs:,} epoch{'s' * (info.planned_epochs != 1)}"
    return f"{config.max_env_steps:,} env steps (about {info.planned_epochs:,} epochs)"


def _ends_by_epochs(config: "Config", info: "TrainInfo") -> bool:
    """Whether `max_epochs` is reached before `max_env_steps`."""
    return config.max_env_steps is None or info.planned_epochs == config.max_epochs
