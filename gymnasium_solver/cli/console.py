"""What `gsolve train` tells while it runs: the observer of the training loop.

On a terminal a live dashboard; into a file or a pipe one plain line an evaluation, or every few
seconds; with `quiet` only the start, the result and the path. Whatever is told also goes to the
run's `run.log`, without colours. Used as a context manager, so that the terminal is given back
whatever happens.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.dashboard import GREEN, ORANGE, SKY, Dashboard, Line, State

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.runs.query import RunSummary
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.observer import EvalResult, TrainInfo

SHORTEST_REFRESH_S, LONGEST_REFRESH_S = 1 / 8, 2.0
COST = 0.01  # a refresh is followed by at least its own time / COST without one
LINE_EVERY_S = 5.0

STOPPED = {
    "max_env_steps": "the budget of env steps is used up",
    "max_epochs": "the budget of epochs is used up",
    "solved_eval": "an evaluation reached the threshold",
    "solved_train": "the training episodes reached the threshold",
    "interrupted": "interrupted",
    "diverged": "a value was not finite",
    "error": "an error",
}


class TrainConsole:
    """Observer of one training. `quiet` and whether `console` is a terminal choose the form."""

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.quiet = quiet
        self.live: Live | None = None
        self.state: State | None = None
        self.run: Run | None = None
        self._pending: list[dict[str, Any]] = []
        self._next_refresh_s = 0.0
        self._next_line_s = 0.0

    def __enter__(self) -> "TrainConsole":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_live()

    # --- the observer

    def on_start(self, run: "Run", config: "Config", info: "TrainInfo") -> None:
        self.run = run
        name = f"{config.env_id}:{config.variant or config.algo_id}"
        self.state = State(
            run_id=run.id,
            name=name,
            header=header(config, info),
            max_env_steps=config.max_env_steps,
            planned_epochs=info.planned_epochs,
            threshold=info.threshold,
        )
        now_s = time.monotonic()
        self._next_line_s = now_s + LINE_EVERY_S
        if self.console.is_terminal and not self.quiet:
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
        elif self.quiet:
            self._say(f"{name}: training for {_budget(config, info)}, run {run.id}")
        else:
            self._say(Text.assemble((name, "bold"), "  ", (run.id, SKY)))
            self._say(*_header_lines(self.state))
        for note in info.notes:
            self.on_message("info", note)

    def on_epoch(self, row: dict[str, Any]) -> None:
        self._pending.append(row)
        now_s = time.monotonic()
        if self.live is not None:
            if now_s >= self._next_refresh_s:
                self._refresh()
        elif now_s >= self._next_line_s:
            self._progress_line()

    def on_eval(self, result: "EvalResult", is_best: bool) -> None:
        state = self._digest()
        state.add_eval(result)
        text = f"{fmt.number(result.mean, 1)} ± {fmt.number(result.std, 1)}"
        self._remember(
            [
                (f"{time.strftime('%H:%M:%S')}  ", "bright_black"),
                (f"val at {fmt.number(result.env_steps)}: ", "none"),
                (text, "bold"),
                ("  ★ best so far" if is_best else "", ORANGE),
            ]
        )
        self._progress_line(val=text + (" ★" if is_best else ""))

    def on_checkpoint(self, path: Path, kind: str) -> None:
        self._log(f"checkpoint ({kind}): {path}")

    def on_message(self, level: str, text: str) -> None:
        colour = {"warning": ORANGE, "error": "red"}.get(level, "none")
        prefix = "" if level == "info" else f"{level}: "
        self._remember([(f"{time.strftime('%H:%M:%S')}  ", "bright_black"), (prefix + text, colour)])
        if self.live is not None or (self.quiet and level == "info"):
            self._log(prefix + text)
        else:
            self._say(Text(prefix + text, style=colour))

    def on_end(self, summary: "RunSummary", final: "dict[str, EvalResult]") -> None:
        self._stop_live()
        lines = quiet_result(summary, final) if self.quiet else result(summary, final)
        self._say(*lines)

    # --- how it is told

    def _digest(self) -> State:
        """Take in the rows that came since the last look."""
        assert self.state is not None, "on_start comes first"
        for row in self._pending:
            self.state.add_row(row)
        self._pending.clear()
        return self.state

    def _refresh(self) -> None:
        assert self.live is not None
        begun_s = time.monotonic()
        self._digest()
        self.live.refresh()
        ended_s = time.monotonic()
        pause_s = (ended_s - begun_s) / COST
        self._next_refresh_s = ended_s + min(max(SHORTEST_REFRESH_S, pause_s), LONGEST_REFRESH_S)

    def _remember(self, line: Line) -> None:
        assert self.state is not None, "on_start comes first"
        self.state.messages.append(line)

    def _progress_line(self, val: str | None = None) -> None:
        """One plain line: to the log always, to the screen where there is no dashboard."""
        state = self._digest()
        self._next_line_s = time.monotonic() + LINE_EVERY_S
        if not state.row:
            return
        train = state.row.get("train/roll/ep_rew/mean")
        parts = [
            f"{100 * state.fraction():5.1f} %",
            f"{fmt.number(state.row['env_steps']):>10} env steps",
            f"train {fmt.number(train, 1):>8}",
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
        """To the screen and to the log."""
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


def header(config: "Config", info: "TrainInfo") -> list[tuple[str, str]]:
    """What is about to run, as (label, text)."""
    spec = info.env_spec
    reason = f" ({spec.engine_reason})" if spec.engine_reason else ""
    threshold = "no threshold" if info.threshold is None else f"solved at {info.threshold:g}"
    lines = [
        ("env", f"{spec.env_id} × {config.n_envs} on {spec.engine}{reason}"),
        (
            "agent",
            f"{config.algo_id} · {info.n_parameters:,} parameters · {info.device}"
            f" · seed {config.seed}",
        ),
        ("budget", f"{_budget(config, info)} · {threshold}"),
    ]
    if info.resumed_from is not None:
        lines.append(("resumed", f"at {info.resumed_from:,} env steps"))
    return lines


def _header_lines(state: State) -> list[Text]:
    return [Text.assemble((f"  {key:<8}", "bright_black"), text) for key, text in state.header]


def _budget(config: "Config", info: "TrainInfo") -> str:
    parts = []
    if config.max_env_steps:
        parts.append(f"{config.max_env_steps:,} env steps")
    if info.planned_epochs:
        parts.append(f"{info.planned_epochs:,} epochs")
    return " · ".join(parts)


def verdict(summary: "RunSummary") -> Text:
    """The first line of the end: solved, or how far it came."""
    best = summary.best
    score = "no evaluation yet" if not best else f"best val {fmt.number(best.score, 1)}"
    after = f"{summary.env_steps:,} env steps, {fmt.duration(summary.wall_s)}"
    if summary.solved:
        return Text.assemble(
            ("SOLVED", f"bold {GREEN}"), f"  {score} ≥ {summary.threshold:g}  in {after}"
        )
    word = {"interrupted": "INTERRUPTED", "failed": "FAILED"}.get(summary.status, "not solved")
    if summary.threshold is None and word == "not solved":
        word = "finished"
    aim = "" if summary.threshold is None else f" (solved is {summary.threshold:g})"
    return Text.assemble((word, f"bold {ORANGE}"), f"  {score}{aim}  after {after}")


def result(summary: "RunSummary", final: "dict[str, EvalResult]") -> list[Text]:
    """The end, in full."""
    rows = [("stopped", STOPPED.get(summary.stop_reason or "", summary.stop_reason or "-"))]
    if summary.best:
        rows.append(
            (
                "best",
                f"val {fmt.number(summary.best.score, 1)} at"
                f" {summary.best.env_steps:,} env steps, in checkpoints/best",
            )
        )
    for mode, test in final.items():
        rows.append(
            (
                "test" if mode == next(iter(final)) else "",
                f"{mode:<8} {fmt.number(test.mean, 1)} ± {fmt.number(test.std, 1)}"
                f"  ({test.episodes} episodes, seed {test.seed})",
            )
        )
    rows.append(("folder", str(summary.path)))
    rows += [("next" if i == 0 else "", line) for i, line in enumerate(next_steps(summary))]
    body = [Text.assemble((f"  {key:<9}", "bright_black"), text) for key, text in rows]
    return [Text(""), verdict(summary), *body]


def quiet_result(summary: "RunSummary", final: "dict[str, EvalResult]") -> list[Text]:
    scores = [f"{mode} {fmt.number(test.mean, 1)}" for mode, test in final.items()]
    line = verdict(summary)
    if scores:
        line.append("  test: " + ", ".join(scores))
    return [line, Text(str(summary.path))]


def next_steps(summary: "RunSummary") -> list[str]:
    """What to type now, with the run's id."""
    run = summary.id
    if summary.status in ("interrupted", "failed", "killed"):
        resume = f"gsolve train --resume {run}"
        return [f"{resume:<60}  # goes on exactly where it stopped", f"gsolve run {run}"]
    more = f"gsolve train --resume {run} --max-env-steps {2 * max(1, summary.env_steps)}"
    return [f"gsolve eval {run}", f"gsolve plot {run}", more]
