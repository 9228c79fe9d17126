"""report.html: the report of one or several runs as one file that opens without a server.

Everything is inside the file: style, curves as SVG, small videos. There is no script. Text from run
folders is escaped.
"""

import base64
import json
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gymnasium_solver.chart_style import COLOURS
from gymnasium_solver.runs.metrics import PANELS, SPREAD, TRAIN, VAL, describe
from gymnasium_solver.runs.report_facts import Facts
from gymnasium_solver.runs.report_style import STYLE
from gymnasium_solver.runs.svg_chart import Line, Mark, line_chart
from gymnasium_solver.runs.words import ScoreText, result_rows, train_command, verdict_words

MORE_PANELS = (
    "train/opt/ppo/clip_fraction", "train/opt/grads/norm/all", "train/sys/timing/fps_instant"
)  # fmt: skip
LARGEST_VIDEO = 6_000_000  # bytes; a larger one is linked, not embedded
MEDIA_TYPES = {".mp4": "video/mp4", ".webp": "image/webp", ".gif": "image/gif"}


def run_page(facts: Facts) -> str:
    """The page of one run."""
    sections = [
        _head(facts),
        _result(facts),
        _curves(facts),
        _alerts(facts),
        _videos(facts),
        _config(facts),
        _evaluations(facts),
        _machine(facts),
        _reproduce(facts),
    ]
    return _page(f"{facts.name}: {verdict_words(facts.summary)}", sections)


def runs_page(runs: Sequence[Facts], sections: Sequence[str] = ()) -> str:
    """One page about several runs: results, curves on shared axes, fields that differ. `sections`
    is HTML to show before."""
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(runs))]
    names = sorted({facts.name for facts in runs})
    title = f"{len(runs)} runs: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
    parts = [f"<h1>{escape(title)}</h1>", *sections, _comparison(runs, colours)]
    for env_id in dict.fromkeys(facts.summary.env_id for facts in runs):
        group = [(f, c) for f, c in zip(runs, colours, strict=True) if f.summary.env_id == env_id]
        parts.append(_shared_curves(env_id, group))
    parts.append(_differences(runs))
    parts += [_alerts(facts, facts.run.id) for facts in runs]
    return _page(title, parts)


def _page(title: str, sections: Iterable[str]) -> str:
    body = "\n".join(section for section in sections if section)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _head(facts: Facts) -> str:
    run = facts.summary
    words = verdict_words(run)
    kind = "good" if run.solved else "plain" if run.threshold is None else "bad"
    about = (run.config or {}).get("description")
    return (
        f'<h1>{escape(facts.name)} <span class="badge {kind}">{escape(words)}</span></h1>'
        f"<p>{escape(str(about)) + '<br>' if about else ''}"
        f'<span class="quiet">Run <code>{escape(run.id)}</code>, started '
        f"{escape(run.created_at)}, seed {escape(str(run.seed))}</span></p>"
    )


def _result(facts: Facts) -> str:
    rows, why = result_rows(facts.summary, facts.tests, _score(facts))
    note = f"<p>{escape(why)}</p>" if why else ""
    return "<h2>Result</h2>" + html_table(None, rows) + note


def _score(facts: Facts) -> ScoreText:
    every = [*facts.validations, *facts.failed_tests, *facts.tests]
    return ScoreText(facts.summary.threshold, [event.get("mean") for event in every])


def _curves(facts: Facts) -> str:
    marks = [Mark(alert.first_env_steps, f"{alert.name}: {alert.text}") for alert in facts.alerts]
    lines = _return_lines(facts, COLOURS[0], "")
    threshold = facts.summary.threshold
    text = f"solved at {_score(facts).threshold}"
    main = line_chart(lines, level=threshold, level_label=text, marks=marks)
    if not main:
        return "<h2>Curves</h2><p>No metrics are logged yet.</p>"
    keys = [(line.colour, line.label, line.opacity) for line in lines]
    names = (*PANELS, *MORE_PANELS)
    small = [_panel(name, facts.curves[name]) for name in names if _changes(facts, name)]
    level = f' <span class="quiet">dashed: {escape(text)}</span>' if threshold is not None else ""
    return (
        f"<h2>Curves</h2><figure>{main}<figcaption>{legend(keys)}{level}</figcaption></figure>"
        f'<div class="panels">{"".join(small)}</div>'
    )


def _return_lines(facts: Facts, colour: str, prefix: str) -> list[Line]:
    train, val = facts.curves.get(TRAIN, []), facts.curves.get(VAL, [])
    spread = {x: y for x, y in facts.curves.get(SPREAD, []) if y is not None}
    lines = [Line(f"{prefix}training episodes", train, colour, width=1.2, opacity=0.5)]
    if val:
        label = f"{prefix}evaluations (± std)"
        band: dict[float, float] = {} if prefix else {float(x): y for x, y in spread.items()}
        lines.append(Line(label, val, colour, width=2.4, spread=band, marker=len(val) <= 60))
    return lines


def _changes(facts: Facts, name: str) -> bool:
    return len({y for _, y in facts.curves.get(name, []) if y is not None}) > 1


def _panel(name: str, curve: Sequence[tuple[int, float | None]]) -> str:
    meaning = describe(name).description
    chart = line_chart([Line(name, curve, COLOURS[0], width=1.8)], height=200)
    return (
        f'<figure title="{escape(meaning)}"><figcaption>{escape(name)}</figcaption>{chart}</figure>'
    )


def legend(keys: Sequence[tuple[str, str, float]]) -> str:
    return " ".join(
        f'<span class="key"><i style="background:{colour};opacity:{opacity}"></i>'
        f"{escape(label)}</span>"
        for colour, label, opacity in keys
    )


def _alerts(facts: Facts, of: str = "") -> str:
    title = f"Alerts of {of}" if of else "Alerts"
    if not facts.alerts:
        return "" if of else "<h2>Alerts</h2><p>None.</p>"
    items = []
    for alert in facts.alerts:
        items.append(
            f'<div class="alert-box"><strong>{escape(alert.name)}</strong> '
            f'<span class="quiet">{alert.span}</span>'
            f"<p>{escape(alert.text)}</p>"
            f"<p>{escape(alert.meaning)}</p><p>Try: {escape(alert.advice)}</p></div>"
        )
    return f"<h2>{escape(title)}</h2>" + "".join(items)


def _videos(facts: Facts) -> str:
    if not facts.videos:
        return ""
    return "<h2>Videos</h2>" + "".join(f"<figure>{_media(path)}</figure>" for path in facts.videos)


def _media(path: Path) -> str:
    kind = MEDIA_TYPES[path.suffix.lower()]
    link = f"videos/{escape(path.name)}"
    if path.stat().st_size <= LARGEST_VIDEO:
        link = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    caption = f"<figcaption>{escape(path.name)}</figcaption>"
    if kind.startswith("video"):
        return f'<video controls loop muted playsinline src="{link}"></video>{caption}'
    return f'<img src="{link}" alt="{escape(path.name)}">{caption}'


def _config(facts: Facts) -> str:
    changed = facts.changed
    if changed is None:
        text = "<p>There is no shipped config of this name to compare with.</p>"
    elif not changed:
        text = "<p>The shipped config, unchanged.</p>"
    else:
        rows = [(name, _value(old), _value(new)) for name, (old, new) in changed.items()]
        text = html_table(("field", "shipped", "this run"), rows)
    whole = "\n".join(f"{k}: {_value(v)}" for k, v in (facts.summary.config or {}).items())
    return (
        f"<h2>Config</h2>{text}<details><summary>All fields</summary>"
        f"<pre>{escape(whole)}</pre></details>"
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _evaluations(facts: Facts) -> str:
    score = _score(facts)
    parts = []
    for title, events in (
        ("Tests", facts.tests),
        ("Failed tests", facts.failed_tests),
        ("Validation", facts.validations),
    ):
        if events:
            rows = [
                (
                    f"{event.get('env_steps', 0):,}",
                    *(score(event.get(name)) for name in ("mean", "std", "min", "max")),
                    str(event.get("episodes", "-")),
                    "greedy" if event.get("greedy") else "sampled",
                )
                for event in events
            ]
            heads = ("env steps", "mean", "std", "min", "max", "episodes", "actions")
            parts.append(f"<h3>{title}</h3>" + html_table(heads, rows))
    return "<h2>Evaluations</h2>" + ("".join(parts) or "<p>None.</p>")


def _machine(facts: Facts) -> str:
    machine, versions = facts.meta.get("machine") or {}, facts.meta.get("versions") or {}
    rows = [
        ("CPU", f"{machine.get('cpu')}, {machine.get('cpu_count')} CPUs"),
        ("platform", str(machine.get("platform"))),
        ("versions", ", ".join(f"{k} {v}" for k, v in versions.items() if v)),
    ]
    shares = sorted(facts.time_shares.items(), key=lambda item: -item[1])
    bars = "".join(
        f'<div class="bar"><span>{escape(name)}</span><i style="width:{100 * share:.1f}%"></i>'
        f"<b>{share:.0%}</b></div>"
        for name, share in shares
        if share >= 0.005
    )
    return "<h2>Machine and time</h2>" + html_table(None, rows) + bars


def _reproduce(facts: Facts) -> str:
    run, meta = facts.summary, facts.meta
    lines = [train_command(run)]
    command = meta.get("command")
    if isinstance(command, list) and command:
        lines.append(f"# started with: {shlex.join(str(part) for part in command)}")
    git = meta.get("git")
    if isinstance(git, dict):
        dirty = " with the changes in git.diff" if git.get("dirty") else ""
        lines.append(f"# commit {git.get('commit')}{dirty}")
    return f"<h2>Reproduce</h2><pre>{escape(chr(10).join(lines))}</pre>"


def _comparison(runs: Sequence[Facts], colours: Sequence[str]) -> str:
    rows = []
    for facts, colour in zip(runs, colours, strict=True):
        run, score = facts.summary, _score(facts)
        key = f'<i class="dot" style="background:{colour}"></i><code>{escape(run.id)}</code>'
        rows.append(
            (
                key,
                *map(
                    escape,
                    (
                        facts.name,
                        str(run.seed),
                        verdict_words(run),
                        score.test(run.test) if run.test else "-",
                        score(run.best["score"]) if run.best else "-",
                        f"{run.env_steps:,}",
                        f"{run.wall_s:,.0f} s",
                    ),
                ),
            )
        )
    heads = ("run", "config", "seed", "verdict", "test", "best val", "env steps", "time")
    return "<h2>Results</h2>" + html_table(heads, rows, is_html=True)


def _shared_curves(env_id: str, group: Sequence[tuple[Facts, str]]) -> str:
    lines = [
        line for facts, colour in group for line in _return_lines(facts, colour, f"{facts.run.id} ")
    ]
    thresholds = [f.summary.threshold for f, _ in group if f.summary.threshold is not None]
    chart = line_chart(lines, level=thresholds[0] if thresholds else None, height=320)
    keys = legend([(colour, facts.run.id, 1.0) for facts, colour in group])
    return f"<h2>{escape(env_id)}</h2><figure>{chart}<figcaption>{keys}</figcaption></figure>"


def _differences(runs: Sequence[Facts]) -> str:
    """Fields whose values are not the same in all runs."""
    configs = [facts.summary.config or {} for facts in runs]
    fields = dict.fromkeys(name for config in configs for name in config if name != "spec")
    rows = []
    for name in fields:
        values = [_value(config.get(name)) for config in configs]
        if len(set(values)) > 1:
            rows.append((name, *values))
    if not rows:
        return "<h2>Config</h2><p>All runs have the same config.</p>"
    heads = ("field", *(facts.run.id for facts in runs))
    return "<h2>Fields that differ</h2>" + html_table(heads, rows)


def html_table(
    heads: Sequence[str] | None, rows: Iterable[Sequence[str]], *, is_html: bool = False
) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        texts = row if is_html and tag == "td" else [escape(text) for text in row]
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    head = f"<thead>{cells(heads, 'th')}</thead>" if heads else ""
    body = "".join(cells(row, "td") for row in rows)
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'
