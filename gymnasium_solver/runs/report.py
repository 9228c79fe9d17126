"""report.md and report.html: one page about a run, from `runs/query.py` only.

`write_report(run.path)` is called at the end of training; calling it again updates both. What is
told is put together once, as sections of texts, tables and commands, and rendered as Markdown and
as HTML. The HTML file opens without a server: curves and small videos are inside, and there is no
script. Text from run folders is escaped.
"""

import base64
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gymnasium_solver.chart_style import COLOURS
from gymnasium_solver.paths import read_regular
from gymnasium_solver.printable import markdown_text, printable
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.runs.html_page import (
    Html,
    Line,
    Points,
    html_page,
    html_table,
    html_text,
    legend,
    line_chart,
)
from gymnasium_solver.runs.metrics import PANELS, SPREAD, TRAIN, VAL, describe, own_metrics
from gymnasium_solver.runs.query import MEDIA_TYPES, RunDetails, get_details
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import (
    eval_command,
    result_rows,
    resume_command,
    train_command,
    verdict_words,
)

MORE_PANELS = (
    "train/opt/ppo/clip_fraction", "train/opt/grads/norm/all", "train/sys/timing/fps_instant"
)  # fmt: skip
LARGEST_VIDEO = 6_000_000  # bytes; a larger one is linked, not embedded
_FILES = {
    "config.yaml": "the resolved config; train from it to repeat the run",
    "meta.json": "command, versions, git commit, machine, status",
    "git.diff": "uncommitted changes of the working directory at the start",
    "metrics.jsonl": "one row per epoch",
    "events.jsonl": "evaluations, tests, checkpoints, changed settings",
    "run.log": "console output",
    "checkpoints": "weights and training state; best and last point into it",
}


class Code(str):
    """Text that is shown as code."""


class Text(NamedTuple):
    """A paragraph: words of ours with {} where values stand."""

    words: str
    values: tuple[object, ...] = ()


class Table(NamedTuple):
    heads: tuple[str, ...] | None
    rows: Sequence[Sequence[str]]


class Commands(NamedTuple):
    lines: list[str]


class Sentences(NamedTuple):
    """A list of sentences."""

    lines: Sequence[str]


class Own(NamedTuple):
    """Something that each form shows in its own way; "" where it does not."""

    html: str
    markdown: str = ""


Block = Text | Table | Commands | Sentences | Own
NONE = Text("None.")


def write_report(run_dir: Path) -> Path:
    """Write `report.md` and `report.html` into a run folder and return the path of the first."""
    run = Run(run_dir)
    _page(get_details(run)).write(run.path)
    return run.report_path


def markdown(details: RunDetails) -> str:
    return _page(details).markdown()


def run_page(details: RunDetails) -> str:
    """The page of one run."""
    return _page(details).html()


def _page(details: RunDetails) -> "Page":
    run = details.summary
    kind = "good" if run.solved else "plain" if run.threshold is None else "bad"
    about = [Text("Run {}, started {}.", (Code(run.id), run.created_at))]
    if described := details.config.get("description"):
        about.append(Text("{}", (described,)))
    return Page(run.name, verdict_words(run), kind, about, _sections(details))


class Page(NamedTuple):
    """A page of sections, to be written in either form."""

    title: str
    badge: str  # the result in a word or two
    kind: str  # its colour: good, bad or plain
    about: Sequence[Block]
    sections: Mapping[str, Sequence[Block]]

    def markdown(self) -> str:
        title = f"# {markdown_text(self.title)}: {markdown_text(self.badge)}"
        parts = [title, *map(block_markdown, self.about)]
        for heading, blocks in self.sections.items():
            if any(shown := [block_markdown(block) for block in blocks]):
                parts += [f"## {heading}", *filter(None, shown)]
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        badge = f'<span class="badge {self.kind}">{escape(self.badge)}</span>'
        parts = [f"<h1>{escape(self.title)} {badge}</h1>", *map(_html, self.about)]
        for heading, blocks in self.sections.items():
            if blocks:
                parts += [f"<h2>{escape(heading)}</h2>", *map(_html, blocks)]
        return html_page(f"{self.title}: {self.badge}", parts)

    def write(self, folder: Path) -> list[Path]:
        """Write report.html and report.md; returns both."""
        texts = {"report.html": self.html(), "report.md": self.markdown()}
        with writing("the report", folder):
            for name, text in texts.items():
                write_atomic(folder / name, text.encode(errors="replace"))
        return [folder / name for name in texts]


def block_markdown(block: Block) -> str:
    match block:
        case Text(words, values):
            return words.format(*map(_markdown_value, values))
        case Table(heads, rows):
            top = heads or ("",) * len(rows[0])
            lines = [top, ["---"] * len(top), *(map(_markdown_value, row) for row in rows)]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)
        case Commands(lines):  # the fence is longer than any row of backticks inside
            shown = "\n".join(map(printable, lines))
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
            return f"{fence}\n{shown}\n{fence}"
        case Sentences(lines):
            return "\n".join(f"- {markdown_text(line)}" for line in lines)
        case Own():
            return block.markdown


def _markdown_value(value: object) -> str:
    if isinstance(value, Code):
        return f"`{printable(value).replace('`', '').replace('|', chr(92) + '|')}`"
    return markdown_text(value)


def _html(block: Block) -> str:
    match block:
        case Text(words, values):
            return f"<p>{escape(words).format(*map(_html_value, values))}</p>"
        case Table(heads, rows):
            return html_table(heads, [[Html(_html_value(value)) for value in row] for row in rows])
        case Commands(lines):
            return f"<pre>{escape(chr(10).join(lines))}</pre>"
        case Sentences(lines):
            return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
        case Own():
            return block.html


def _html_value(value: object) -> str:
    return f"<code>{escape(value)}</code>" if isinstance(value, Code) else html_text(value)


# -- what is told of one run ----------------------------------------------------------------------


def _sections(details: RunDetails) -> dict[str, list[Block]]:
    run = details.summary
    rows, why = result_rows(run, details.tests, details.score)
    folder = details.run.path
    files = [(Code(name), text) for name, text in _FILES.items() if (folder / name).exists()]
    commands = [f"gsolve run {run.id}", f"gsolve plot {run.id}"]
    if run.checkpoints:
        commands = [eval_command(run), *commands, resume_command(run)]
    told: dict[str, list[Block]] = {
        "Result": [Table(None, rows), *([Text("{}", (why,))] if why else [])],
        "Curves": [Own(_curves(details))],
        "Alerts": _alerts(details),
        "Videos": _videos(details),
        "Config": _config(details),
        "Reproduce": _reproduce(details),
        "Tests": _evaluations(details, details.tests),
        "Failed tests": _evaluations(details, details.failed_tests),
        "Validation": _evaluations(details, details.validations) or [NONE],
        "Checkpoints": _checkpoints(details),
        "Time": _time(details),
        "Files": [Table(("file", "what it holds"), files)],
        "Next": [Commands(commands)],
    }
    return {heading: blocks for heading, blocks in told.items() if blocks}


def _curves(details: RunDetails) -> str:
    marks = [(alert.first_env_steps, f"{alert.name}: {alert.text}") for alert in details.alerts]
    lines = _return_lines(details, COLOURS[0], "")
    threshold = details.summary.threshold
    text = f"solved at {details.score.threshold}"
    main = line_chart(lines, level=threshold, level_label=text, marks=marks)
    if not main:
        return "<p>No metrics are logged yet.</p>"
    keys = [(line.colour, line.label, line.opacity) for line in lines]
    names = (*PANELS, *MORE_PANELS, *own_metrics(details.curves))
    panels = {name: details.curves.get(name, []) for name in names}
    small = "".join(
        f'<figure title="{escape(describe(name).description)}"><figcaption>{escape(name)}'
        f"</figcaption>{line_chart([Line(name, points, COLOURS[0], 1.8)], height=200)}</figure>"
        for name, points in panels.items()
        if len({y for _, y in points if y is not None}) > 1
    )
    small += _spreads(details)
    level = f' <span class="quiet">dashed: {escape(text)}</span>' if threshold is not None else ""
    return (
        f"<figure>{main}<figcaption>{legend(keys)}{level}</figcaption></figure>"
        f'<div class="panels">{small}</div>'
    )


def _spreads(details: RunDetails) -> str:
    """Bands of Q-values and of TD errors, where the run has a replay."""

    def points(name: str) -> list[tuple[float, float]]:
        return [(x, y) for x, y in details.curves.get(f"train/opt/{name}", []) if y is not None]

    low, median, high = (points(f"q/percentile/{percent}") for percent in ("05", "50", "95"))
    charts = ""
    if len(low) == len(median) == len(high) > 1:
        band = [(x, a, b) for (x, a), (_, b) in zip(low, high, strict=True)]
        charts += _spread("Q-values: median, 5 % to 95 %", median, band)
    mean, std = points("td_error/mean"), points("td_error/std")
    if len(mean) == len(std) > 1:
        band = [(x, y - s, y + s) for (x, y), (_, s) in zip(mean, std, strict=True)]
        charts += _spread("TD errors: mean ± std", mean, band)
    return charts


def _spread(title: str, points: Points, band: list[tuple[float, float, float]]) -> str:
    chart = line_chart([Line(title, points, COLOURS[0], 1.8, band=band)], height=200)
    return f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>"


def _return_lines(details: RunDetails, colour: str, prefix: str) -> list[Line]:
    train, val = details.curves.get(TRAIN, []), details.curves.get(VAL, [])
    spread = {x: y for x, y in details.curves.get(SPREAD, []) if y is not None}
    lines = [Line(f"{prefix}training episodes", train, colour, width=1.2, opacity=0.5)]
    if val:
        label = f"{prefix}evaluations (± std)"
        known = [(x, y, spread.get(x, 0.0)) for x, y in val if y is not None and spread]
        band = [] if prefix else [(x, y - std, y + std) for x, y, std in known]
        lines.append(Line(label, val, colour, width=2.4, band=band, marker=len(val) <= 60))
    return lines


def _alerts(details: RunDetails) -> list[Block]:
    if not details.alerts:
        return [NONE]
    heads = ("alert", "when", "seen", "what it usually means", "what to try")
    rows = [(Code(a.name), a.span, a.text, a.meaning, a.advice) for a in details.alerts]
    return [Own(_alert_boxes(details), block_markdown(Table(heads, rows)))]


def _alert_boxes(details: RunDetails) -> str:
    return "".join(
        f'<div class="alert-box"><strong>{escape(alert.name)}</strong> '
        f'<span class="quiet">{alert.span}</span><p>{escape(alert.text)}</p>'
        f"<p>{escape(alert.meaning)}</p><p>Try: {escape(alert.advice)}</p></div>"
        for alert in details.alerts
    )


def _videos(details: RunDetails) -> list[Block]:
    return [
        Own(
            f"<figure>{_media(path)}<figcaption>{escape(path.name)}</figcaption></figure>",
            f"- [{markdown_text(path.name)}](videos/{quote(path.name)})",
        )
        for path in details.videos
    ]


def _media(path: Path) -> str:
    kind, link = MEDIA_TYPES[path.suffix.lower()], f"videos/{escape(path.name)}"
    if path.stat().st_size <= LARGEST_VIDEO:
        link = f"data:{kind};base64,{base64.b64encode(read_regular(path)).decode()}"
    if kind.startswith("video"):
        return f'<video controls loop muted playsinline src="{link}"></video>'
    return f'<img src="{link}" alt="{escape(path.name)}">'


def _config(details: RunDetails) -> list[Block]:
    if (changed := details.changed) is None:
        told: list[Block] = [Text("There is no shipped config of this name to compare with.")]
    elif not changed:
        told = [Text("The shipped config, unchanged.")]
    else:
        rows = [(Code(name), _shown(old), _shown(new)) for name, (old, new) in changed.items()]
        table = Table(("field", "shipped", "this run"), rows)
        told = [Text("Fields that differ from the shipped config."), table]
    return [*told, all_fields(details.config)]


def all_fields(config: Mapping[str, Any], title: str = "All fields") -> Own:
    """A whole config, folded up; in HTML alone."""
    whole = "\n".join(f"{name}: {_shown(value)}" for name, value in config.items())
    return Own(f"<details><summary>{escape(title)}</summary><pre>{escape(whole)}</pre></details>")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _reproduce(details: RunDetails) -> list[Block]:
    run, meta = details.summary, details.meta
    told: list[Block] = [Commands([train_command(run)]), Text("The seed is {}.", (run.seed,))]
    if meta["command"]:
        told += [Text("Started with"), Commands([shlex.join(meta["command"])])]
    told += made_with([meta])
    if meta["resumed"]:
        places = ", ".join(f"{entry['from_env_steps']:,}" for entry in meta["resumed"])
        told.append(Text("Resumed from env steps {}.", (places,)))
    return told


def made_with(metas: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Commit, versions and machine of some runs, each once."""
    versions, commits, machines = list[Text](), list[Text](), list[Text]()
    for meta in metas:
        git, machine = meta.get("git") or {}, meta.get("machine") or {}
        pairs = (meta.get("versions") or {}).items()
        known = ", ".join(f"{name} {version}" for name, version in pairs if version)
        versions.append(Text("Versions: {}.", (known,)))
        if git.get("commit"):
            words = (
                "Git commit {}, with the changes in {}." if git.get("dirty") else "Git commit {}."
            )
            commits.append(Text(words, (Code(git["commit"]), Code("git.diff"))))
        about = f"{machine.get('cpu')}, {machine.get('cpu_count')} CPUs, {machine.get('platform')}"
        machines.append(Text("Machine: {}.", (about,)))
    return [*dict.fromkeys([*versions, *commits, *machines])]


def _evaluations(details: RunDetails, events: list[dict[str, Any]]) -> list[Block]:
    score = details.score
    rows = [
        (
            f"{event.get('env_steps', 0):,}",
            *(score(event.get(name)) for name in ("mean", "std", "min", "max")),
            "-" if (length := event.get("length_mean")) is None else f"{length:,.1f}",
            str(event.get("episodes", "-")),
            "greedy" if event.get("greedy") else "sampled",
        )
        for event in events
    ]
    heads = ("env steps", "mean", "std", "min", "max", "length", "episodes", "actions")
    return [Table(heads, rows)] if rows else []


def _checkpoints(details: RunDetails) -> list[Block]:
    rows = []
    for checkpoint in details.summary.checkpoints:
        marks = ["@best"] * checkpoint["best"] + ["@last"] * checkpoint["last"]
        score = details.score(checkpoint["score"])
        rows.append((str(checkpoint["env_steps"]), score, " ".join(marks)))
    return [Table(("env steps", "validation", ""), rows)] if rows else []


def _time(details: RunDetails) -> list[Block]:
    shares = sorted(details.time_shares.items(), key=lambda item: -item[1])
    rows = [(name, f"{share:.1%}") for name, share in shares if share >= 0.0005]
    bars = "".join(
        f'<div class="bar"><span>{escape(name)}</span>'
        f'<i style="width:{text}"></i><b>{text}</b></div>'
        for name, text in rows
    )
    return [Own(bars, block_markdown(Table(("part", "share of the time"), rows)))] if rows else []


# -- several runs ---------------------------------------------------------------------------------


def runs_page(runs: Sequence[RunDetails], sections: Sequence[str] = ()) -> str:
    """Results of several runs, curves on shared axes, fields that differ; `sections` come first."""
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(runs))]
    names = sorted({details.summary.name for details in runs})
    title = f"{len(runs)} runs: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
    parts = [f"<h1>{escape(title)}</h1>", *sections, _comparison(runs, colours)]
    for env_id in dict.fromkeys(details.summary.env_id for details in runs):
        pairs = zip(runs, colours, strict=True)
        parts.append(_shared_curves(env_id, [p for p in pairs if p[0].summary.env_id == env_id]))
    parts.append(_differences(runs))
    for details in runs:
        if details.alerts:
            parts += [f"<h2>Alerts of {escape(details.run.id)}</h2>", _alert_boxes(details)]
    return html_page(title, parts)


def _comparison(runs: Sequence[RunDetails], colours: Sequence[str]) -> str:
    rows = []
    for details, colour in zip(runs, colours, strict=True):
        run, score = details.summary, details.score
        dot = f'<i class="dot" style="background:{colour}"></i><code>{escape(run.id)}</code>'
        shown = (score.test(run.test) if run.test else "-", score(run.best_score))
        done = (f"{run.env_steps:,}", f"{run.wall_s:,.0f} s")
        rows.append((Html(dot), run.name, run.seed, verdict_words(run), *shown, *done))
    heads = ("run", "config", "seed", "verdict", "test", "best val", "env steps", "time")
    return "<h2>Results</h2>" + html_table(heads, rows)


def _shared_curves(env_id: str, group: Sequence[tuple[RunDetails, str]]) -> str:
    lines = [line for d, colour in group for line in _return_lines(d, colour, f"{d.run.id} ")]
    thresholds = [d.summary.threshold for d, _ in group if d.summary.threshold is not None]
    chart = line_chart(lines, level=thresholds[0] if thresholds else None, height=320)
    keys = legend([(colour, details.run.id, 1.0) for details, colour in group])
    return f"<h2>{escape(env_id)}</h2><figure>{chart}<figcaption>{keys}</figcaption></figure>"


def _differences(runs: Sequence[RunDetails]) -> str:
    """Fields whose values are not the same in all runs."""
    configs = [details.config for details in runs]
    fields = dict.fromkeys(name for config in configs for name in config if name != "spec")
    rows = [(name, *(_shown(config.get(name)) for config in configs)) for name in fields]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if not rows:
        return "<h2>Config</h2><p>All runs have the same config.</p>"
    heads = ("field", *(details.run.id for details in runs))
    return "<h2>Fields that differ</h2>" + html_table(heads, rows)
