"""What a sweep leaves: a page (report.html, report.md) and pictures, made from the folder alone,
and the winner as a variant of a config file, with its provenance."""

import base64
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from gymnasium_solver.chart_style import COLOURS, GREY, saved_figure
from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.comparison_report import curve_blocks
from gymnasium_solver.experiments.groups import Group, labelled_groups, short_text
from gymnasium_solver.experiments.search.journal import COMPLETE, FAILED, PRUNED, Trial
from gymnasium_solver.experiments.search.ranges import Options
from gymnasium_solver.experiments.search.ranking import front, valued
from gymnasium_solver.experiments.search.space import Param, overrides
from gymnasium_solver.experiments.search.sweep_folder import View, result_of, trained_values
from gymnasium_solver.runs import report
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.runs.report import Block, Code, Commands, Own, Page, Table, Text
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

MOST_ROWS = 20
NEAR_ONE = (0.1, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999)  # ticks
SCALES = {**dict.fromkeys(("log", "log0", "logint", "lognormal", "pow2"), "log"), "logit": "logit"}


def sweep_page(found: View) -> Page:
    """One page to send round, with pictures in the folder: the winner and what it is worth, curves
    of the final, what mattered, the trials, what failed, and how to repeat it."""
    sweep, plan = found.sweep, found.plan
    not_over = {"verdict": f"not over: {found.status}"}
    result = found.result or result_of(plan, found.trials) | not_over
    groups = _final_groups(found, result)
    base, _ = read_file(sweep.base_path)
    rows = found.rows()
    failures = [
        (str(row["number"]), values_text(row["params"]), str(row["reason"] or "-"))
        for row in sorted(rows, key=lambda row: row["number"])
        if row["state"] == FAILED
    ]
    verdict = str(result.get("verdict") or "")
    sections: dict[str, list[Block]] = {
        "Result": _summary(found, result),
        "Final on fresh seeds": _final(found, result, groups),
        "Curves of the final": curve_blocks(groups, "") if groups else [],
        "Importance": _importance(found),
        "Pictures": [_picture(path) for path in draw_all(found)],
        "Best trials of the search": [
            _trial_table(found, rows),
            *([Text("* on the Pareto front of score and cost.")] if plan.cost else []),
            Text("These scores are those of the search: the best of many is too good. Quote the "
                 "final."),
        ],
        "Trials that failed": [Table(("trial", "values", "why"), failures)] if failures else [],
        "Searched": [Table(("parameter", "range"), [(n, Code(t)) for n, t in plan.params.items()])],
        "Config": [report.all_fields(base, "The config before the search")],
        "Reproduce": [
            Commands([f"gsolve sweep {sweep.path.name}/sweep.yaml",
                      f"gsolve sweep --resume {sweep.id}"]),
            Text("The first repeats it with the same version, the second continues or extends it."),
            *report.made_with([member.meta for group in groups for member in group.members]),
        ],
    }  # fmt: skip
    kind = "good" if verdict.startswith("better") else "plain"
    about = Text("Sweep {}: {} trials of {}.", (Code(sweep.id), len(rows), plan.config))
    badge = verdict.partition(":")[0] or f"{result['trials']} trials"
    return Page(f"Sweep of {plan.config}", badge, kind, [about], sections)


def _summary(found: View, result: Mapping[str, Any]) -> list[Block]:
    plan = found.plan
    states = ", ".join(f"{n} {state}" for state, n in result["states"].items() if n)
    told: list[Block] = [
        Text("{} trials ({}), sampler {}, {} {}.", (result["trials"], states, plan.sampler,
             plan.metric.goal, Code(plan.metric.name))),
    ]  # fmt: skip
    if (number := result["winner"]) is not None:
        values = values_text(trained_values(found.sweep, plan, found.trials[number]))
        what = f"the config's own values ({values})" if result["is_own"] else values
        told.append(Text("Winner: trial {}: {}.", (number, what)))
    if fresh := result.get("fresh"):
        told.append(Text("{}", (fresh_text(fresh, result["run"]),)))
    if result.get("verdict"):
        told.append(Text("Verdict: {}.", (result["verdict"],)))
    return told


def _final(found: View, result: Mapping[str, Any], groups: Sequence[Group]) -> list[Block]:
    if not result["final"]:
        return []
    name = found.plan.metric.name
    heads = ("trial", name, "test score", "95 % interval", "solved", "env steps")
    told: list[Block] = [Table(heads, [final_cells(row) for row in result["final"]])]
    if result.get("choice"):
        told.append(Text("{}", (choice_text(result),)))
    seeds = [
        (group.label, str(m.summary.seed), number_text(m.summary.test_mean),
         number_text(m.summary.best_score), f"{m.summary.env_steps:,}")
        for group in groups
        for m in group.members
    ]  # fmt: skip
    if seeds:
        told.append(Table(("trial", "seed", "test", "best validation", "env steps"), seeds))
    return told


def _final_groups(found: View, result: Mapping[str, Any]) -> list[Group]:
    """The runs of the final that judge: the winner and the config's own values."""
    runs = []
    for row in result["final"]:
        label = f"trial {row['trial']}" + " (own values)" * bool(row["own"])
        folder = found.sweep.final_dir(row["trial"], 0).parent
        runs += [(label, str(path)) for path in sorted(folder.glob("seed*"))]
    return labelled_groups(runs, found.sweep.path)


def _importance(found: View) -> list[Block]:
    rows = [
        (name, f"{share.value:.0%}", f"{share.low:.0%} to {share.high:.0%}")
        for name, share in found.importances().items()
    ]
    if not rows:
        return [Text("Too few trials to tell which parameters matter.")]
    return [
        Table(("parameter", "share of the variance explained", "90 % of repeats"), rows),
        Text("Shares come from {} trials; the repeats draw them anew. A parameter whose repeats "
             "reach 0 % is not shown to matter, nor is it shown not to.",
             (len(valued(found.trials)),)),
    ]  # fmt: skip


def _picture(path: Path) -> Own:
    data = base64.b64encode(path.read_bytes()).decode()
    image = f'<img src="data:image/png;base64,{data}" alt="{path.name}">'
    return Own(f"<figure>{image}</figure>", f"![{path.name}]({path.name})")


def fresh_text(fresh: Mapping[str, Any], run: str) -> str:
    """The score of the agent that a population has trained."""
    error = f" +- {number_text(fresh['stderr'])}" if fresh.get("stderr") is not None else ""
    return f"Agent: {number_text(fresh['mean'])}{error} over {fresh['episodes']} episodes: {run}"


def choice_text(result: Mapping[str, Any]) -> str:
    """How one of several finalists was chosen."""
    found = ", ".join(f"{row['trial']} ({number_text(row['value'])})" for row in result["choice"])
    return (
        f"Chosen from the trials {found} by {len(result['choice_seeds'])} fresh seeds. The seeds "
        "of the table had no part in any choice."
    )


def final_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of the table of a final."""
    ends = row.get("interval")
    return (
        f"{row['trial']}{' (own values)' if row['own'] else ''}",
        number_text(row["value"]),
        number_text(row["score"]),
        f"{number_text(ends[0])} to {number_text(ends[1])}" if ends else "",
        f"{row['solved']}/{row['seeds']}",
        f"{row['env_steps']:,.0f}",
    )


def _trial_table(found: View, rows: Sequence[Mapping[str, Any]]) -> Table:
    cells = [
        (f"{row['number']}{'*' * row['on_front']}{' (own values)' * row['own']}",
         number_text(row["value"]), f"{row['env_steps'] or 0:,.0f}",
         *(value_text(row["params"].get(name)) for name in found.plan.params))
        for row in rows
        if row["state"] == COMPLETE
    ]  # fmt: skip
    return Table(
        ("trial", found.plan.metric.name, "env steps", *found.plan.params), cells[:MOST_ROWS]
    )


def number_text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def value_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping | list):
        return short_text(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value_text(value)}" for name, value in values.items())


# -- pictures: each parameter against the score, the history, and score against cost --------------


def draw_all(found: View) -> list[Path]:
    """Write the pictures into the folder."""
    over = [t for t in found.trials if t.state in (COMPLETE, PRUNED) and t.value is not None]
    if len(over) < 2:
        return []
    drawn = {"params.png": _draw_params, "history.png": _draw_history}
    if found.plan.cost is not None or len({trial.cost for trial in over}) > 1:
        drawn["pareto.png"] = _draw_pareto
    for name, draw in drawn.items():
        draw(found, over, found.sweep.path / name)
    return [found.sweep.path / name for name in drawn]


def _draw_params(found: View, trials: Sequence[Trial], path: Path) -> None:
    """One panel per parameter, the most important first; colours are the numbers of trials."""
    from matplotlib.ticker import MaxNLocator

    shares = {name: share.value for name, share in found.importances().items()}
    order = sorted(found.plan.space().params, key=lambda param: -shares.get(param.name, 0.0))
    n_columns = min(3, len(order))
    size = 4.2 * n_columns, 3.1 * -(-len(order) // n_columns)
    with saved_figure(path, len(order), n_columns, size) as axes:
        for i, (ax, param) in enumerate(zip(axes, order, strict=True)):
            points = _draw_param(ax, param, found, trials)
            share = shares.get(param.name)
            title = param.name if share is None else f"{param.name}, importance {share:.0%}"
            ax.set(title=title, ylabel=found.plan.metric.name if i % n_columns == 0 else "")
        bar = ax.figure.colorbar(points, ax=ax.figure.axes, shrink=0.6, label="trial", aspect=30)
        bar.locator = MaxNLocator(integer=True)


def _draw_param(ax: "Axes", param: Param, found: View, trials: Sequence[Trial]) -> "PathCollection":
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

    latent, scale = param.latent(), SCALES.get(str(param.distribution).partition(":")[0])
    seen = [trial for trial in trials if param.name in trial.latents]
    seen.sort(key=lambda trial: found.plan.sign * (trial.value or 0.0))  # the best are drawn last
    places = [param.distribution.decode(trial.latents[param.name]) for trial in seen]
    if isinstance(latent, Options):
        options = [param.distribution.decode(option) for option in latent.options]
        places = [options.index(value) for value in places]
        ax.set_xticks(range(len(options)), [str(option) for option in options])
    else:  # the config's own values may lie outside the ranges
        own = [trained_values(found.sweep, found.plan, trial)[param.name] for trial in seen]
        places = [x if isinstance(x, int | float) else at
                  for x, at in zip(own, places, strict=True)]  # fmt: skip
    if scale == "logit":
        ax.set_xscale("logit")
        ends = [x for x in NEAR_ONE if min(places) <= x <= max(places)]
        ax.xaxis.set_major_locator(FixedLocator(ends or [min(places), max(places)]))
    elif scale == "log" and min(places) > 0:
        ax.set_xscale("log", base=2 if str(param.distribution).startswith("pow2") else 10)
    elif scale == "log":  # a range with 0
        low = min(place for place in places if place > 0) if any(places) else 1.0
        ax.set_xscale("symlog", linthresh=low)
    elif all(isinstance(place, int) for place in places):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if ax.get_xscale() != "linear":  # not 10^-3, which needs mathematics
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    return ax.scatter(
        places, _values(seen), c=[trial.number for trial in seen], cmap="viridis", s=26, alpha=0.85,
        linewidths=0, zorder=3,
    )  # fmt: skip


def _draw_history(found: View, trials: Sequence[Trial], path: Path) -> None:
    """The trials in their order, the best so far, and beside them the seeds of the final."""
    from matplotlib.ticker import MaxNLocator

    plan, final = found.plan, (found.result or {}).get("final") or ()
    with saved_figure(path, 1, 1, (8, 3.8)) as (ax,):
        for state, colour, label in ((COMPLETE, COLOURS[0], "trial"), (PRUNED, GREY, "pruned")):
            if some := [trial for trial in trials if trial.state == state]:
                numbers = [trial.number for trial in some]
                ax.scatter(numbers, _values(some), s=22, color=colour, label=label)
        known = valued(trials)
        best = accumulate((plan.sign * value for _, value in known), max)
        ax.step([t.number for t, _ in known], [plan.sign * value for value in best], where="post",
                color=COLOURS[1], label="best so far")  # fmt: skip
        end = max(trial.number for trial in trials)
        for i, row in enumerate(final):
            at, colour = end + 2 + 1.5 * i, COLOURS[4 + i % 2]
            name = "own values" if row["own"] else f"trial {row['trial']}"
            ax.scatter([at] * len(row["values"]), row["values"], s=14, color=colour, alpha=0.6)
            ax.scatter([at], [row["value"]], s=160, marker="_", linewidths=2.6, color=colour,
                       label=f"final: {name}, fresh seeds")  # fmt: skip
        if final:
            ax.axvline(end + 1, color=GREY, linewidth=0.8)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="trial", ylabel=plan.metric.name, title="search history")
        ax.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_pareto(found: View, trials: Sequence[Trial], path: Path) -> None:
    """Score against cost, with the front."""
    over = [trial for trial, _ in valued(trials)]
    with saved_figure(path, 1, 1, (7, 4.2)) as (ax,):
        ax.scatter([t.cost for t in over], _values(over), s=24, color=GREY, zorder=3)
        best = front(found.plan, over)
        ax.plot([t.cost for t in best], _values(best), "o-", color=COLOURS[1],
                label="not beaten in both")  # fmt: skip
        for trial in best:
            ax.annotate(str(trial.number), (trial.cost, trial.value or 0.0), fontsize=8,
                        xytext=(4, 4), textcoords="offset points")  # fmt: skip
        cost = {"wall_s": "seconds of training"}.get(found.plan.cost or "", "env steps")
        ax.set(xlabel=cost, ylabel=found.plan.metric.name, title="score against cost")
        ax.legend()


def _values(trials: Sequence[Trial]) -> list[float]:
    return [trial.value or 0.0 for trial in trials]


SWEEP_ONLY = ("eval_freq_steps", "eval_freq_epochs", "seed")
"""Fields that a sweep sets for comparison only."""
POPULATION_ONLY = ("early_stop_on_eval_threshold", "early_stop_on_train_threshold", "max_epochs")


def best_lines(found: View, number: int) -> tuple[dict[str, Any], list[str]]:
    """The lines of a trial's config, as short as the config it comes from, and its provenance."""
    if not 0 <= number < len(found.trials):
        raise RunError(f"{found.sweep.id} has no trial {number}: 0 to {len(found.trials) - 1}")
    trial = found.trials[number]
    found.sweep.check_trust()
    content, _ = read_file(found.sweep.base_path)
    lines = {key: value for key, value in dict(content).items() if key not in SWEEP_ONLY}
    fields = config_dict(load_config(str(found.sweep.base_path)))
    if (found.result or {}).get("lineage"):
        lines = {key: value for key, value in lines.items() if key not in POPULATION_ONLY}
        lines = apply_overrides(lines, lineage_fields((found.result or {})["lineage"], fields))
    elif not trial.attrs.get("own"):
        values = found.plan.space().decode(trial.latents)
        lines = apply_overrides(lines, overrides(values, fields))
    return lines, _provenance(found, number)


def lineage_fields(
    lineage: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of a lineage as config lines: stairs for numbers, the last value for the rest."""
    lines: dict[str, Any] = {}
    for name, last in lineage[-1]["params"].items():
        points: list[list[float]] = []
        for row in lineage:
            value = row["params"].get(name, last)
            if points and points[-1][1] == value:
                continue
            if points:
                points.append([max(row["env_steps"] - 1, points[-1][0] + 1), points[-1][1]])
            points.append([row["env_steps"], value])
        is_number = isinstance(last, int | float) and not isinstance(last, bool)
        if len(points) == 1 or not is_number or "." in name:
            lines |= overrides({name: last}, fields)
        else:
            lines[name] = {"schedule": "piecewise", "points": points}
    return lines


def _provenance(found: View, number: int) -> list[str]:
    plan = found.plan
    lines = [
        f"From sweep {found.sweep.id}, trial {number} of {len(found.trials)}: {plan.sampler} over "
        f"{', '.join(plan.params)} of {plan.config}, gymnasium-solver {__version__}.",
    ]
    rows = [row for row in (found.result or {}).get("final") or [] if row["trial"] == number]
    for row in rows:
        _, _, score, ends, _, env_steps = final_cells(row)
        lines.append(
            f"Final: test score {score}{f' (95 % interval {ends})' if ends else ''}, "
            f"{row['solved']} of {row['seeds']} seeds solved, {env_steps} env steps on average."
        )
    if fresh := (found.result or {}).get("fresh"):
        lines.append(
            f"The agent trained by the population scores {number_text(fresh['mean'])} over "
            f"{fresh['episodes']} fresh episodes. This schedule is not confirmed on fresh seeds."
        )
    elif not rows:
        lines.append("Not confirmed on fresh seeds.")
    return lines


def write_variant(
    target: str, found: View, lines: dict[str, Any], provenance: Sequence[str]
) -> tuple[Path, str]:
    """Add a variant to a file, or begin the file; what is in it stays as it is."""
    place, colon, name = target.rpartition(":")
    path = Path(place)
    if not colon or path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--write {target}: expected FILE.yaml:VARIANT")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ConfigError(f"--write {target}: {name!r} is not a variant's name, such as ppo_tuned")
    before = ""
    own = {key: value for key, value in lines.items() if key not in ("variant", "project_id")}
    if path.exists():
        file = read_config_file(path)
        if name in file.variants:
            raise ConfigError(f"{path} has a variant {name} already: choose another name")
        env_id = file.base.get("env_id", own["env_id"])
        if env_id != own["env_id"]:
            raise ConfigError(f"{path} is about {env_id}, the sweep about {own['env_id']}")
        own = {key: value for key, value in own.items() if file.base.get(key) != value
               or key == "algo_id"}  # fmt: skip
        before = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n"
    shared = ""
    if not before:
        kept = [key for key in ("env_id", "spec") if key in own]
        shared = dump_yaml({key: own.pop(key) for key in kept}) + "\n"
    comment = "".join(f"# {line}\n" for line in provenance)
    block = f"{name}:\n{indent(dump_yaml(own), '  ')}"
    with writing("the config", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (before + shared + comment + block).encode())
    load_config(f"{path}:{name}")  # it can be trained
    return path, name
