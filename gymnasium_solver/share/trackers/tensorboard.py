"""TensorBoard: scalars, histograms of actions, videos as moving images, config and alerts as text,
hyper-parameters. Files are written without TensorFlow (tb_events.py).

    tensorboard --logdir runs/<id>/trackers/tensorboard
"""

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import RunError
from gymnasium_solver.paths import cannot_write_file
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.curves import event_rows
from gymnasium_solver.runs.files import read_bytes
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.share.trackers import tb_events as tb
from gymnasium_solver.share.trackers.media import as_gif
from gymnasium_solver.share.trackers.sink import Sent, Sink, Subject, numbers

_BIN = re.compile(r"(?P<name>.+)/hist/(?P<bin>\d+)")
BOX_BINS = 10  # of actions in a range, from -1 to 1


class TensorBoardSink(Sink):
    """One event file. It is cut to what is known to be complete; after a rewind it is replaced by a
    new one, which a running TensorBoard takes up."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        self._subject = subject
        own = subject.folder / "tensorboard"
        self.folder = own if subject.options.out is None else subject.options.out / subject.run.id
        self._started_s = datetime.fromisoformat(subject.meta["created_at"]).timestamp()
        self._last_s = self._started_s
        self._closed_at: str | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path, size = Path(str(state.get("path", ""))), int(state.get("size", 0))
            is_ours = path.parent == self.folder.absolute() and path.is_file()
            if is_ours and path.stat().st_size >= size > 0:
                self._file = tb.EventFile(path, size)
                self._last_s = float(state.get("last_s", self._started_s))
                self._closed_at = state.get("closed_at")
                return sent
            self._start()
        except OSError as error:
            raise cannot_write_file("event files", self.folder, error) from None
        return Sent()

    def _start(self) -> None:
        """A new file instead of those that this tracker wrote before."""
        for old in self.folder.glob("events.out.tfevents.*.gsolve"):
            old.unlink()
        name = f"events.out.tfevents.{time.time_ns():020d}.{machine.hostname()}.gsolve"
        self._file = tb.EventFile(self.folder.absolute() / name, wall_time=self._started_s)
        config = self._subject.config
        shown = f"```yaml\n{dump_yaml(config)}\n```"
        values = [
            tb.text("config", shown),
            tb.hparams_start(hyperparams(config), self._subject.run.id, self._started_s),
        ]
        self._file.add(self._started_s, 0, values)

    def rewind(self, kept: Sent) -> Sent:
        self._file.close()
        self._start()
        return Sent()

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        wall_s = row.get("wall_s")
        if isinstance(wall_s, int | float):
            self._last_s = self._started_s + wall_s
        found = numbers(row)
        bins: dict[str, dict[int, float]] = {}
        for name in list(found):
            if match := _BIN.fullmatch(name):
                bins.setdefault(match["name"], {})[int(match["bin"])] = found.pop(name)
        values = [tb.scalar(name, value) for name, value in found.items() if name != "wall_s"]
        for name, counts in bins.items():
            limits = _limits(len(counts), self._is_range(len(counts)))
            values.append(tb.histogram(f"{name}/hist", limits, [counts[i] for i in sorted(counts)]))
        self._file.add(self._last_s, row["env_steps"], values)

    def _is_range(self, n_bins: int) -> bool:
        space = self._subject.run.meta().get("action_space")
        return n_bins == BOX_BINS and isinstance(space, dict) and "low" in space

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        for row in event_rows([event], self._subject.run.meta()):
            values = [tb.scalar(name, value) for name, value in numbers(row).items()]
            self._file.add(self._last_s, row["env_steps"], values)
        step, kind = int(event.get("env_steps") or 0), event.get("kind")
        if kind == "video":
            if gif := as_gif(self._subject.run.path / str(event.get("path"))):
                self._file.add(self._last_s, step, [tb.image("video", *gif)])
        elif kind in ("alert", "config", "diverged"):
            fields = {k: v for k, v in event.items() if k not in ("kind", "at")}
            shown = event.get("text") or json.dumps(fields, default=str)
            self._file.add(self._last_s, step, [tb.text(f"{kind}s", f"{step:,}: {shown}")])

    def commit(self) -> dict[str, Any]:
        try:
            size = self._file.sync()
        except OSError as error:
            raise cannot_write_file("the event file", self._file.path, error) from None
        return {"path": str(self._file.path), "size": size, "last_s": self._last_s,
                "closed_at": self._closed_at}  # fmt: skip

    def close(self, summary: RunSummary) -> str:
        at = f"{summary.status} {summary.env_steps}"
        if self._closed_at != at:
            self._file.add(self._last_s, summary.env_steps, self._last_values(summary))
            self._closed_at = at
        return f"tensorboard --logdir {self.folder}"

    def _last_values(self, summary: RunSummary) -> list[bytes]:
        values = []
        if summary.status in ("finished", "failed"):
            values.append(tb.hparams_end(summary.status == "finished", self._last_s))
        with suppress(RunError):
            report = read_bytes(self._subject.run.report_path, "").decode(errors="replace")
            values.append(tb.text("report", report))
        return values


def hyperparams(config: Mapping[str, Any]) -> dict[str, Any]:
    """The plain fields of a config; a schedule by its long name."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if name in ("spec", "description") or value is None or value == [] or value == {}:
            continue
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            flat[name] = value
    return {k: v if isinstance(v, bool | int | float | str) else json.dumps(v, default=str)
            for k, v in flat.items() if v is not None}  # fmt: skip


def _limits(n: int, is_range: bool) -> list[float]:
    if is_range:
        return [-1.0 + 2.0 * (i + 1) / n for i in range(n)]
    return [i + 0.5 for i in range(n)]
