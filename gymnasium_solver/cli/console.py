"""Output of `gsolve train` during a run: an observer of the training loop.

On a terminal it shows a live dashboard; in a file or a pipe, a plain line per evaluation and every
few seconds; with `quiet`, only the start, the result and the path. All output is also written to
the run's `run.log`, without colours. A thread keeps the display moving while an epoch or an
evaluation is long, and reads keys. Used as a context manager, so that the terminal is always
restored:

    with TrainConsole() as console:
        loop.train(config, runs_root=root, observers=[console])
"""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli import summary as results
from gymnasium_solver.cli.dashboard import table_lines
from gymnasium_solver.cli.display import OUTPUT, Display
from gymnasium_solver.cli.live_state import Line, State, plural
from gymnasium_solver.cli.logs import LogCapture, rank
from gymnasium_solver.cli.output import GREY, ORANGE, SKY
from gymnasium_solver.runs.query import tracker_urls
from gymnasium_solver.runs.words import ScoreText, runs_dir_flag, success_text
from gymnasium_solver.training.activity import PREEMPTED
from gymnasium_solver.training.observer import Observer

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.runs.alerts.alert import Alert
    from gymnasium_solver.runs.query import RunSummary
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.observer import EvalResult, TrainInfo

LINE_EVERY_S, LONGEST_LINE_S = 5.0, 60.0
COLOURS = {"debug": GREY, "warning": ORANGE, "error": "red"}


class TrainConsole(Observer):
    """Observer of one training. `quiet`, and whether `console` is a terminal, select the output."""

    _told_urls = False  # whether the header has the addresses of trackers

    def __init__(
        self,
        *,
        quiet: bool = False,
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
        runs_dir: str | None = None,
        console: Console | None = None,
        keys: bool = False,
        log_level: str = "info",
    ) -> None:
        """`keys`: read keys while the dashboard is shown, if the input is a terminal. `log_level`:
        messages below it are not shown; run.log has them from info on."""
        self.console = console or out.SafeConsole(highlight=False, markup=False, emoji=False)
        self.quiet, self.with_keys, self.log_level = quiet, keys, log_level
        self.notes = notes
        self.warnings = warnings  # printed before the dashboard is drawn, so that they stay visible
        self.runs_dir = runs_dir
        """Value of the --runs-dir flag, if given; the suggested commands include it."""
        self.exit_code = 1  # exit code of the command: 1 until the run has ended normally
        self.state: State | None = None
        self.run: Run | None = None
        self.display: Display | None = None
        self._captured = LogCapture(self.on_message, log_level)
        self._pending: deque[dict[str, Any]] = deque()
        self._started_s = self._next_line_s = 0.0
        self._told_requests: list[str] = []

    def __enter__(self) -> Self:
        self._captured.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._stop_display()
        self._captured.stop()
        if error is not None and self.run is not None:
            self._say(*results.broken_off(self.run, self.runs_dir), hangs=True)
            self._log(f"{type(error).__name__}: {error}")

    # --- the observer

    def on_start(self, run: "Run", config: "Config", info: "TrainInfo") -> None:
        self.run = run
        name = f"{config.env_id}:{config.variant or config.algo_id}"
        self.state = State(
            run_id=run.id,
            name=name,
            header=[*header(config, info), ("watch", [f"gsolve ui{runs_dir_flag(self.runs_dir)}"])],
            max_env_steps=env_step_budget(config, info),
            planned_epochs=info.planned_epochs,
            activity=info.activity,
            control=info.control,
            threshold=info.threshold,
            start_steps=info.resumed_from or 0,
            start_epoch=info.activity.epoch,
            wall_before_s=info.wall_s,
            folder_url=run.path.absolute().as_uri(),
        )
        if info.resumed_from and (best := run.meta().get("best")):
            self.state.best["val/roll/ep_rew/mean"] = best["score"]
        self.display = Display(self.console, self.state, self._on_tick, self._show)
        self._started_s = time.monotonic()
        self._next_line_s = self._started_s + LINE_EVERY_S
        self._say(*(Text(f"warning: {warning}", style=ORANGE) for warning in self.warnings))
        lines = [
            Text.assemble((f"  {key:<8}", GREY), " · ".join(parts))
            for key, parts in self.state.header
        ]
        is_live = not self.quiet and self.console.is_terminal and not self.console.is_dumb_terminal
        if self.quiet:
            with_notes = f", with {', '.join(self.notes)}" if self.notes else ""
            self._say(f"{name}: training for {budget(config, info)}, run {run.id}{with_notes}")
        elif is_live:
            self._log(f"{name}  {run.id}", *lines)
        else:
            self._say(Text.assemble((name, "bold"), "  ", (run.id, SKY)), *lines)
        self.display.start(dashboard=is_live, keys=self.with_keys)
        for note in (*self.notes, *info.notes):
            self.on_message("info", note)

    shows_rows = True

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._pending.append(row)  # digested by the display's thread
        if self.display is not None:
            self.display.check()

    def on_eval(self, result: "EvalResult", is_best: bool) -> None:
        with OUTPUT:
            self._digest().add_eval(result)
            text = self._score(result.mean).spread(result.mean, result.std)
            text += success_text(result.success)
            self._remember(
                [
                    (f"{time.strftime('%H:%M:%S')}  ", GREY),
                    (f"val at {out.number(result.env_steps)}: ", "none"),
                    (text, "bold"),
                    ("  ★ best so far" if is_best else "", ORANGE),
                ]
            )
            self._progress_line(val=text + (" ★" if is_best else ""))
            for name, score in result.tasks.items():
                self._log(f"task {name}: {score['mean']:.6g}")

    def on_test(self, result: "EvalResult", required: float) -> None:
        score = self._score(result.mean)
        verdict = f"a repeated test needs {score(required)}; training continues"
        if result.mean >= required:
            verdict = "passed"
        elif self.state is not None and result.mean < (self.state.threshold or 0.0):
            verdict = f"below {score.threshold}; training continues"
        text = f"test at {out.number(result.env_steps)}: {score.test(result.score())}"
        self.on_message("info", f"{text}, {verdict}")

    def on_checkpoint(self, path: Path, kind: str) -> None:
        self._log(f"checkpoint ({kind}): {path}")
        if self.display is not None and self.display.took_checkpoint():
            self._show("info", f"checkpoint saved at {int(path.name):,} env steps")
        elif rank(self.log_level) == rank("debug"):
            self._show("debug", f"debug: checkpoint ({kind}): {path.name}")

    def on_alert(self, alert: "Alert") -> None:
        with OUTPUT:
            if self.state is not None:
                self.state.add_alert(alert)
        if alert.is_over:
            self._tell("info", f"alert over: {alert.name}")
        else:
            self._tell("warning", f"alert: {alert.name}: {alert.text}")

    def on_message(self, level: str, text: str) -> None:
        self._tell(level, text if level == "info" else f"{level}: {text}")

    def on_end(self, summary: "RunSummary", final: "dict[str, EvalResult]") -> None:
        is_live = self._is_live
        if self.state is not None:
            self.state.refresh()
            self.state.ended = True
        self._stop_display()
        # 75 after SIGTERM ("try again": a batch system may resume it), 130 after Ctrl-C.
        is_sigterm = summary.stop_detail == "SIGTERM"
        is_cut = summary.stop_reason == "interrupted"
        self.exit_code = (PREEMPTED if is_sigterm else 130) if is_cut else 0
        if self.quiet:
            self._say(*results.quiet_result(summary, final))
            return
        if self.state is not None:
            # Last, lowest and highest value, mean, deviation and history of every shown metric.
            rows = [Text.assemble(*line) for line in table_lines(self.state, 108, room=10_000)]
            for row in rows:
                row.rstrip()
            (self._log if is_live else self._say)(*([""] if rows else []), *rows)
        self._say(*results.result(summary, final, self.runs_dir), hangs=True)

    def on_profile(self, table: list[str], trace: Path) -> None:
        self._stop_display()
        self._say("", "where the time went", *table, f"  trace    {trace}")

    # --- output

    def _on_tick(self) -> None:
        """Called by the display's thread several times a second."""
        state = self._digest()
        state.refresh()
        if not self._told_urls and self.run is not None and (urls := tracker_urls(self.run)):
            self._told_urls = True
            state.header = [*state.header, *((name, [url]) for name, url in urls.items())]
        self._tell_requests(state)
        if time.monotonic() >= self._next_line_s:
            self._progress_line()

    @property
    def _is_live(self) -> bool:
        return self.display is not None and self.display.is_live

    def _stop_display(self) -> None:
        if self.display is None:
            return
        with OUTPUT:
            self._digest().refresh()
        self.display.stop()
        self.display = None

    def _digest(self) -> State:
        """Process the rows received since the last call."""
        assert self.state is not None, "on_start must be called first"
        while self._pending:
            self.state.add_row(self._pending.popleft())
        return self.state

    def _score(self, score: float | None) -> ScoreText:
        return ScoreText(self.state.threshold if self.state else None, score)

    def _remember(self, line: Line) -> None:
        if self.state is not None:
            self.state.messages.append(line)

    def _tell(self, level: str, text: str) -> None:
        """Log and show a message, as the log level says."""
        with OUTPUT:
            if rank(level) >= min(rank("info"), rank(self.log_level)):
                self._log(text)
            if rank(level) >= rank("warning" if self.quiet else self.log_level):
                self._show(level, text)

    def _show(self, level: str, text: str) -> None:
        """Put a message into the dashboard, or print it if there is none."""
        with OUTPUT:
            colour = COLOURS.get(level, "none")
            self._remember([(f"{time.strftime('%H:%M:%S')}  ", GREY), (text, colour)])
            if not self._is_live:
                self.console.print(Text(text, style=colour), soft_wrap=True)

    def _tell_requests(self, state: State) -> None:
        """Without a dashboard: acknowledge Ctrl-C with a line."""
        is_signalled = state.activity.stop_signal is not None or state.signal is not None
        asked = state.requests() if is_signalled else []
        if asked and not self._told_requests:
            self._told_requests = asked
            text = "; ".join(asked)
            self._log(text)
            if not self._is_live:
                self.console.print(Text(text, style=ORANGE), soft_wrap=True)

    def _progress_line(self, val: str | None = None) -> None:
        """One plain line: always to the log, and to the screen if there is no dashboard. The longer
        the run, the longer between two lines."""
        state = self._digest()
        state.refresh()
        now_s = time.monotonic()
        every_s = min(max(LINE_EVERY_S, (now_s - self._started_s) / 100), LONGEST_LINE_S)
        self._next_line_s = now_s + every_s
        train = state.row.get("train/roll/ep_rew/mean")
        speed, left_s, doing = state.steps_per_s(), state.remaining_s(), state.doing()[0]
        parts = [
            f"{100 * state.fraction():5.1f} %",
            f"{out.number(state.env_steps):>10} env steps",
            "" if train is None else f"train {ScoreText(state.threshold, train)(train):>8}",
            "" if val is None else f"val {val}",
            "" if speed is None else out.steps_per_second(speed),
            "" if left_s is None else f"{out.duration(left_s)} left",
            doing if val is None and doing != "training" else "",
        ]
        line = "  ".join(filter(None, parts))
        shown = not self.quiet and rank("info") >= rank(self.log_level)
        if shown and not self._is_live:
            self.console.print(line, soft_wrap=True)
        self._log(line)

    def _say(self, *lines: str | Text, hangs: bool = False) -> None:
        """Print to the screen and to the log. `hangs`: wrap at the width of a terminal."""
        hangs = hangs and self.console.is_terminal
        with OUTPUT:
            for line in lines:
                parts = results.hanging(Text() + line, self.console.width) if hangs else [line]
                for part in parts:
                    self.console.print(part, soft_wrap=True)
            self._log(*lines)

    def _log(self, *lines: str | Text) -> None:
        if self.run is None or not lines:
            return
        with OUTPUT:
            self.run.log_text("\n".join(str(line).rstrip() for line in lines))


# --- a run that is about to start


def header(config: "Config", info: "TrainInfo") -> list[tuple[str, list[str]]]:
    """(label, parts) of each line, the most important part first."""
    spec = info.env_spec
    env = [f"{spec.env_id} × {config.n_envs} on {spec.engine}"]
    if config.max_episode_steps is not None:
        env.append(f"episodes are cut at {config.max_episode_steps:,} steps (max_episode_steps)")
    if spec.engine_reason:
        env.append(spec.engine_reason)
    agent = [config.algo_id, f"seed {config.seed}", f"{info.n_parameters:,} parameters"]
    agent += [info.device, info.update_mode]
    aim = ScoreText(info.threshold).threshold
    goal = "no threshold" if info.threshold is None else f"solved at {aim}"
    limits = [budget(config, info), goal]
    if info.test_episodes is not None:
        limits.append(f"test of {info.test_episodes:,} {plural('episode', info.test_episodes)}")
    lines = [("env", env), ("agent", agent), ("budget", limits)]
    if info.resumed_from is not None:
        lines.append(("resumed", [f"at {info.resumed_from:,} env steps"]))
    return lines


def budget(config: "Config", info: "TrainInfo") -> str:
    """The budget that ends the run: epochs or env steps, whichever is reached first."""
    epochs = f"{info.planned_epochs:,} {plural('epoch', info.planned_epochs)}"
    steps = env_step_budget(config, info)
    return epochs if steps is None else f"{steps:,} env steps (about {epochs})"


def env_step_budget(config: "Config", info: "TrainInfo") -> int | None:
    """`max_env_steps`; None if `max_epochs` is reached before it."""
    return None if info.planned_epochs == config.max_epochs else config.max_env_steps
