"""A comparison for people: the rows of its table, Markdown, CSV, the summary of an experiment, and
an HTML page about several runs."""

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gymnasium_solver.chart_style import COLOURS, saved_figure
from gymnasium_solver.errors import RunError
from gymnasium_solver.experiments import compare as comparing
from gymnasium_solver.experiments.compare import Comparison, GroupResult, OverEnvironments
from gymnasium_solver.experiments.experiment import Experiment, Progress, Row, counts, status_of
from gymnasium_solver.experiments.groups import VAL, Group, group_runs
from gymnasium_solver.experiments.statistics import METRICS, Estimate, moving_average
from gymnasium_solver.paths import writing_file
from gymnasium_solver.runs import report
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.runs.html_page import Line, html_table, legend, line_chart
from gymnasium_solver.runs.plots import X_LABELS
from gymnasium_solver.runs.query import RunDetails, get_details
from gymnasium_solver.runs.report import Block, Code, Commands, Page, Sentences, Table, Text
from gymnasium_solver.runs.report import markdown as run_markdown
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADS = ("group", "seeds", "IQM [95 %]", "mean", "solved", "solved after", "time")
PICTURE = "curves.png"
REPEATS = 1_000  # of the bands in a page


def rows(groups: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for group in groups:
        score = ScoreText(group.threshold, group.scores)
        table.append((
            group.label,
            str(len(group.scores)),
            estimate_text(group.iqm, score) + "*" * bool(group.n_untested),
            score(group.mean.value),
            "-" if group.threshold is None else f"{group.n_solved} of {len(group.runs)}",
            "-" if group.solved_at is None else f"{group.solved_at:,.0f} steps",
            f"{group.wall_s:,.0f} s",
        ))  # fmt: skip
    return table


def estimate_text(found: Estimate, score: ScoreText) -> str:
    ends = "" if found.n < 2 else f" [{score(found.low)}, {score(found.high)}]"
    return score(found.value) + ends


def notes(comparison: Comparison) -> list[str]:
    """Sentences below the table: verdicts, and what limits them."""
    lines = [f"{v.first} against {v.second}: {v.text}" for v in comparison.verdicts]
    if len(comparison.verdicts) > 1:
        lines.append(
            f"{len(comparison.verdicts)} comparisons, corrected for their number (Holm): all of "
            "them together are wrong in at most 5 % of cases"
        )
    margins = {v.env_id: (v.margin, v.second) for v in comparison.verdicts}
    for env_id, (margin, name) in margins.items():
        base = next(g for g in comparison.groups if (g.label, g.env_id) == (name, env_id))
        place = f" in {env_id}" * (len(margins) > 1)
        score = ScoreText(base.threshold, [margin])(margin)
        lines.append(f"differences of less than {score} do not matter{place} (--margin)")
    for group in comparison.groups:
        if group.repeats:
            lines.append(
                f"{group.label}: one run per seed counts, the newest; not counted: "
                f"{', '.join(group.repeats)}"
            )
        if group.random is not None and group.iqm.n > 1 and group.iqm.low <= group.random:
            score = ScoreText(group.threshold, [*group.scores, group.random])(group.random)
            lines.append(f"{group.label}: not clearly above random actions ({score})")
    for name, found in (comparison.aggregate or {}).items():
        text = estimate_text(found, ScoreText(1.0))
        rank = f", mean rank {comparison.ranks[name]:.2f}" if comparison.ranks else ""
        lines.append(f"{name}, normalised over environments: IQM {text}{rank}")
    if any(group.n_untested for group in comparison.groups):
        lines.append("* some runs were not tested; their best validation counts, which is too high")
    if comparison.machines:
        lines.append(f"the machines differ: {', '.join(comparison.machines)}")
    return lines


def markdown(comparison: Comparison) -> str:
    parts: list[str] = []
    for heading, blocks in sections(comparison).items():
        parts += [f"## {heading}"] * bool(parts) + [
            report.block_markdown(block) for block in blocks
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def sections(comparison: Comparison) -> dict[str, list[Block]]:
    """What a comparison shows, as sections of a page."""
    told: dict[str, list[Block]] = {
        "Result": [Table(HEADS, rows(comparison.groups)), Sentences(notes(comparison))]
    }
    if any(group.measures for group in comparison.groups):
        names, measured = ("random", *comparing.MEASURES), []
        for group in comparison.groups:
            found = {**group.measures, "random": group.random}
            texts = ["-" if (value := found.get(n)) is None else f"{value:.4g}" for n in names]
            measured.append((group.label, *texts))
        heads = ("group", *(name.replace("_", " ") for name in names))
        told["Measures"] = [Table(heads, measured)]
    if (over := comparison.over_environments) is not None:
        aggregated = [
            (name, *(estimate_text(found[m], ScoreText(1.0)) for m in METRICS),
             f"{np.mean(over.ranks[name]):.2f}")
            for name, found in over.aggregates.items()
        ]  # fmt: skip
        heads = ("config", *(name.replace("_", " ") for name in METRICS), "mean rank")
        told["Normalised scores over environments"] = [Table(heads, aggregated)]
    labels = [group.label for group in comparison.groups]
    named = {"Fields that differ": comparison.differences, "Machines": comparison.machines}
    for title, fields in named.items():
        if fields:
            lines = [(name, *map(value_text, values)) for name, values in fields.items()]
            told[title] = [Table(("", *labels), lines)]
    return told


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def csv_text(comparison: Comparison) -> str:
    """One line per seed."""
    lines: list[tuple[Any, ...]] = [("group", "env_id", "run", "seed", "score")]
    for group in comparison.groups:
        seeds = zip(group.runs, group.seeds, group.scores, strict=False)
        lines += [(group.label, group.env_id, *seed) for seed in seeds]
    return csv_lines(lines)


def csv_lines(lines: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def write_summary(
    experiment: Experiment, comparison: Comparison, groups: Sequence[Group]
) -> list[Path]:
    """Write report.html, report.md, scores.csv, comparison.json and curves.png of an experiment;
    returns the reports."""
    folder = experiment.path
    with writing("the summary", folder):
        draw(groups, folder / PICTURE, over=comparison.over_environments)
        write_atomic(folder / "scores.csv", csv_text(comparison).encode())
        data = json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False, default=str) + "\n"
        write_atomic(folder / "comparison.json", data.encode())
    return experiment_page(experiment, comparison, groups).write(folder)


# -- the page of an experiment ---------------------------------------------------------------------


def experiment_page(
    experiment: Experiment, comparison: Comparison | None, groups: Sequence[Group]
) -> Page:
    """One page to send round: what was run and how, every seed, curves, verdicts, failures."""
    progress = Progress(experiment).rows()
    failed = [row for row in progress if row.status in ("failed", "broken", "killed")]
    told = {} if comparison is None else sections(comparison)
    result = told.pop("Result", [Text("No run has a score yet.")])
    measures = told.pop("Measures", [])
    metas = [member.meta for group in groups for member in group.members]
    about: list[Block] = [
        Text("Experiment {}, started {}.", (Code(experiment.id), experiment.created_at)),
        *([Commands([shlex.join(experiment.command)])] if experiment.command else []),
    ]
    page: dict[str, list[Block]] = {
        "Result": result,
        "Curves": curve_blocks(groups) if groups else [],
        "Every seed": [_seeds_table(progress)],
        "Runs that failed": [_failures(failed)] if failed else [],
        **told,
        "Measures of the curves": [*measures, Sentences(MEASURE_WORDS)] if measures else [],
        "Configs": [
            report.all_fields(group.config, f"All fields of {group.label}") for group in groups
        ],
        "Reproduce": [
            Commands([f"gsolve train --resume {experiment.id}", f"gsolve compare {experiment.id}"]),
            *report.made_with(metas),
        ],
        "Words": [Sentences(WORDS)],
    }
    kind = "bad" if failed else "good" if status_of(progress) == "finished" else "plain"
    labels = list(dict.fromkeys(member.group for member in experiment.members))
    title = ", ".join(labels[:3]) + f" and {len(labels) - 3} more" * (len(labels) > 3)
    return Page(title, counts(progress), kind, about, page)


def curve_blocks(groups: Sequence[Group], picture: str = PICTURE) -> list[Block]:
    """The evaluations of each environment: charts in HTML, a picture in Markdown."""
    envs = list(dict.fromkeys(group.env_id for group in groups))
    charts = "".join(_chart(env, [g for g in groups if g.env_id == env]) for env in envs)
    return [report.Own(charts, f"![Learning curves]({picture})" if picture else "")]


def _seeds_table(progress: Sequence[Row]) -> Table:
    lines = []
    for row in progress:
        run, member = row.run, row.member
        if run is None:
            lines.append((member.group, str(member.seed), row.status, *["-"] * 6, Code(member.run)))
            continue
        score = ScoreText(run.threshold, [run.score])
        solved = {True: "yes", False: "no", None: "-"}[run.solved]
        test, episodes = "-", "-"
        if run.test is not None:
            test, episodes = score(run.test["mean"]), f"{run.test['episodes']:,}"
            if run.test["stderr"] is not None:
                test += f" ± {score(run.test['stderr'])}"
        done = (f"{run.env_steps:,}", f"{run.wall_s:,.0f} s")
        found = (test, episodes, score(run.best_score), solved)
        lines.append((member.group, str(member.seed), row.status, *found, *done, Code(member.run)))
    heads = ("config", "seed", "status", "test", "episodes", "validation", "solved", "env steps",
             "time", "run")  # fmt: skip
    return Table(heads, lines)


def _failures(failed: Sequence[Row]) -> Table:
    lines = []
    for row in failed:
        why = "-" if row.run is None else f"{row.run.stop_reason} {row.run.stop_detail or ''}"
        place = f"gsolve run {row.member.run} --log 50"
        lines.append((row.member.group, str(row.member.seed), row.status, why, Code(place)))
    return Table(("config", "seed", "status", "why", "log"), lines)


WORDS = (
    "test: mean return of the best checkpoint on held-out episodes, with its standard error; the "
    "score of a seed",
    "validation: the best one, which chose the checkpoint; it is too high",
    "IQM: interquartile mean, the mean of the middle half of the seeds",
    "[low, high]: 95 % interval over seeds",
    "better, worse: by Welch's t-test of the mean scores, corrected for the number of comparisons "
    "(Holm); equal groups are called different in at most 5 % of cases",
    "no difference that matters: the interval of the difference lies within the smallest "
    "difference that matters",
    "cannot tell: the seeds show neither; it does not mean that the groups are equal",
    "solved after: median env steps until a validation reached the threshold; a seed that never "
    "did counts as later than all others",
)
MEASURE_WORDS = (
    "random: mean return of random actions",
    "strength: mean validation above random, over the training; max and final strength: its "
    "highest and last value",
    "sample efficiency: strength weighted by 1 / env steps; training efficiency: by 1 / updates. "
    "High if the score rises early",
    "stability: 1 minus the sum of all drops of the curve relative to its strength; 1 never drops",
    "consistency: 1 minus twice the deviation between seeds relative to the mean strength; 1: all "
    "seeds alike, below 0: they differ by more than half of the mean",
)


# -- the page -------------------------------------------------------------------------------------


def write_page(path: Path, runs: Sequence[Run]) -> None:
    """Write one page about these runs, as Markdown or HTML by the name of the file."""
    details = [get_details(run) for run in runs]
    roots = {run.path.parent for run in runs}
    if path.suffix.lower() == ".md":
        text = "\n\n".join(run_markdown(one) for one in details)
    elif len(details) == 1:
        text = report.run_page(details[0])
    else:
        text = (
            comparison_page(details, roots.pop()) if len(roots) == 1 else report.runs_page(details)
        )
    with writing_file("the report", path):
        write_atomic(path, text.encode(errors="replace"))


def comparison_page(runs: Sequence[RunDetails], root: Path) -> str:
    """One page about several runs under `root`: groups of seeds with IQM, intervals and verdicts,
    then the single runs."""
    try:
        groups = group_runs([facts.run.id for facts in runs], root)
    except RunError:
        groups = []  # a config cannot be read; the single runs are shown all the same
    parts = []
    if any(len(group.members) > 1 for group in groups):
        if scored := [group for group in groups if group.scores]:
            comparison = comparing.compare(scored)
            lines = "".join(f"<li>{escape(note)}</li>" for note in notes(comparison))
            table = html_table(HEADS, rows(comparison.groups))
            parts.append(f"<h2>Groups of seeds</h2>{table}<ul>{lines}</ul>")
        for env_id in dict.fromkeys(group.env_id for group in groups):
            parts.append(_chart(env_id, [g for g in groups if g.env_id == env_id]))
    return report.runs_page(runs, sections=parts)


def _chart(env_id: str, groups: Sequence[Group]) -> str:
    lines: list[Line] = []
    keys = []
    for i, group in enumerate(groups):
        colour = COLOURS[i % len(COLOURS)]
        curves = [curve for curve in group.curve_set(VAL) if curve]
        keys.append((colour, f"{group.label} (n = {len(curves)})", 1.0))
        width, opacity = (1.0, 0.35) if len(curves) > 1 else (2.0, 1.0)
        lines += [Line(group.label, curve, colour, width, opacity) for curve in curves]
        if (center := group.center(group.curve_set(VAL), REPEATS)) is not None:
            x, y, low, high = (
                part.tolist() for part in (center.x, center.middle, center.low, center.high)
            )
            band = list(zip(x, low, high, strict=True)) if center.has_interval else ()
            points = list(zip(x, y, strict=True))
            lines.append(Line(group.label, points, colour, width=2.4, band=band))
    level = next((group.threshold for group in groups if group.threshold is not None), None)
    chart = line_chart(lines, level=level, height=320)
    text = "thick: IQM over seeds, band: 95 % interval over seeds; thin: single seeds"
    text += f"; dashed: threshold {level:g}" if level is not None else ""
    return (
        f"<h3>{escape(env_id)}: evaluations</h3><figure>{chart}"
        f'<figcaption>{legend(keys)} <span class="quiet">{text}</span></figcaption></figure>'
    )


MOST_IN_A_COLUMN = 4  # panels; more are drawn in two columns
MOST_IN_A_PANEL = 6  # groups whose legend is inside the panel
UNEVEN = 8  # longest by shortest of many groups, from which on a linear axis would squash some
# Algorithms have the same colour in every picture; the others take the colours that are left.
FIXED = {"ppo": 0, "dqn": 1, "sac": 2, "reinforce": 3, "pqn": 4, "td3": 5, "sarsa": 6}
# Lines of the first seven groups are solid, those of the next seven dashed, and so on.
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.5), (1, 1.2), (6, 1.5, 1, 1.5))


class Look(NamedTuple):
    colour: str
    dashes: tuple[float, ...] = ()


def looks(groups: Sequence[Group]) -> list[Look]:
    """A look for each group: the colour of its algorithm, if no other group has taken it, else one
    that is free. Where all colours are taken, they are used again with other dashes."""
    taken: list[int | None] = []
    for group in groups:
        place = FIXED.get(group.members[0].summary.algo_id)
        taken.append(None if place in taken else place)
    every = range(len(COLOURS) * len(DASHES))
    free = cycle([place for place in every if place not in taken])
    places = [next(free) if place is None else place for place in taken]
    return [Look(COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS)]) for i in places]


def draw(
    groups: Sequence[Group],
    path: Path,
    x: str = "env_steps",
    metric: str = VAL,
    smooth: int = 1,
    over: OverEnvironments | None = None,
) -> None:
    """One panel per environment, and the performance profiles if there are several. `smooth`: the
    window of a moving average, in points."""
    envs = list(dict.fromkeys(group.env_id for group in groups))
    own_looks: dict[str, Look] = {}
    n_panels = len(envs) + (over is not None)
    n_columns = 2 if n_panels > MOST_IN_A_COLUMN else 1
    size = 9 * n_columns, 4.4 * -(-n_panels // n_columns)
    with saved_figure(path, n_panels, n_columns, size) as panels:
        for env_id, ax in zip(envs, panels, strict=False):
            own = [group for group in groups if group.env_id == env_id]
            for group, look in zip(own, looks(own), strict=True):
                own_looks.setdefault(group.label.partition(":")[2] or group.label, look)
                _draw_group(ax, group, look, x, metric, smooth, len(own) <= MOST_IN_A_PANEL)
            _finish(ax, own, x, metric)
        if over is not None:
            _draw_profiles(panels[n_panels - 1], over, own_looks)


def _draw_profiles(ax: "Axes", over: OverEnvironments, own_looks: Mapping[str, Look]) -> None:
    for name, (share, low, high) in over.profiles.items():
        look = own_looks.get(name, Look(COLOURS[-1]))
        ax.plot(over.thresholds, share, color=look.colour, dashes=look.dashes, linewidth=2.2,
                label=name)  # fmt: skip
        ax.fill_between(over.thresholds, low, high, color=look.colour, alpha=0.18, linewidth=0)
    ax.set_title(f"performance profile over {len(over.env_ids)} environments")
    ax.set_xlabel("normalised score (0: random actions, 1: threshold or reference)")
    ax.set_ylabel("share of runs above")
    ax.legend(fontsize=9)


def _draw_group(
    ax: "Axes", group: Group, look: Look, x: str, metric: str, smooth: int, with_seeds: bool
) -> None:
    curves = []
    for curve in group.curve_set(metric, x):
        known = [(float(at), y) for at, y in curve if y is not None]
        means = moving_average([y for _, y in known], max(smooth, 1))
        curves.append([(at, y) for (at, _), y in zip(known, means, strict=True)])
    n = sum(bool(curve) for curve in curves)
    label = f"{group.label.removeprefix(group.env_id + ':')} (n = {n})"  # the title has the env
    line: dict[str, Any] = {"color": look.colour, "dashes": look.dashes, "label": label}
    thin: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.35}
    center = group.center(curves)
    if n == 1:
        ax.plot(*zip(*next(filter(None, curves)), strict=True), **thin, **line)
    if center is None:
        return
    for seed in curves if with_seeds else ():
        ax.plot([at for at, _ in seed], [y for _, y in seed], color=look.colour, **thin)
    ax.plot(center.x, center.middle, linewidth=2.2, **line)
    if center.has_interval:
        alpha = 0.18 if with_seeds else 0.10
        ax.fill_between(center.x, center.low, center.high, color=look.colour, alpha=alpha,
                        linewidth=0)  # fmt: skip


def _finish(ax: "Axes", groups: Sequence[Group], x: str, metric: str = VAL) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    thresholds = {g.threshold for g in groups if g.threshold is not None}
    for threshold in sorted(thresholds) if metric == VAL else ():
        ax.axhline(threshold, color="#666666", linewidth=1.1, linestyle=(0, (5, 4)))
    ax.set_title(groups[0].env_id)
    ax.set_xlabel(X_LABELS[x])
    what = "return, evaluations" if metric == VAL else metric
    ax.set_ylabel(f"{what}: IQM and 95 % interval")
    lengths = [max(m.summary.env_steps for m in group.members) for group in groups]
    if len(groups) > 3 and max(lengths) > UNEVEN * max(1, min(lengths)):
        ax.set_xscale("log")
        ax.set_xlabel(f"{X_LABELS[x]} (log scale)")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.01)
    if not ax.get_legend_handles_labels()[0]:  # no run has a point yet
        return
    if len(groups) <= MOST_IN_A_PANEL:
        ax.legend(fontsize=9)
    else:  # next to the curves, which it would hide
        ax.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
