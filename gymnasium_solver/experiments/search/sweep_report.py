"""What a sweep leaves: report.md and its pictures, made from the folder alone, and the winner as a
variant of a config file, with its provenance."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from gymnasium_solver.chart_style import COLOURS
from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.config.load import apply_overrides, config_dict
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.comparison_report import markdown_table, saved_figure
from gymnasium_solver.experiments.search.journal import COMPLETE, PRUNED, Trial
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.ranges import Options
from gymnasium_solver.experiments.search.ranking import front, importances, ranked, valued
from gymnasium_solver.experiments.search.space import Param, overrides
from gymnasium_solver.experiments.search.sweep_folder import Sweep, View
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 20
GREY = "#999999"
SCALES = {"log": "log", "logint": "log", "lognormal": "log", "pow2": "log", "logit": "logit"}


def write_report(
    sweep: Sweep, plan: Plan, trials: Sequence[Trial], result: Mapping[str, Any]
) -> None:
    """Write report.md and its pictures."""
    shares = importances(plan, trials)
    parts = [f"# Sweep {sweep.id}", *_summary(plan, result)]
    if result["final"]:
        parts += ["## Final on fresh seeds"]
        heads = ("trial", plan.metric.name, "test score", "95 % interval", "solved", "env steps")
        parts.append(markdown_table(heads, [final_cells(row) for row in result["final"]]))
        if result.get("choice"):
            parts.append(choice_text(result))
    parts.append("## Importance")
    if shares:
        explained = [(name, f"{share:.0%}") for name, share in shares.items()]
        parts.append(markdown_table(("parameter", "share of the variance explained"), explained))
    else:
        parts.append("Too few trials to tell which parameters matter.")
    searched = [(name, f"`{text}`") for name, text in plan.params.items()]
    parts += [
        "\n".join(f"![{name}]({name})" for name in draw_all(sweep, plan, trials)),
        "## Best trials of the search",
        _trial_table(plan, trials),
        "\\* on the Pareto front of score and cost." if plan.cost else "",
        "Scores in this table are those of the search: the best of many is too good. Quote the "
        "final.",
        "## Searched",
        markdown_table(("parameter", "range"), searched),
        f"Repeat: `gsolve sweep {sweep.path.name}/sweep.yaml` with the same version. Continue or "
        f"extend: `gsolve sweep --resume {sweep.id}`.",
    ]
    write_atomic(sweep.report_path, ("\n\n".join(filter(None, parts)) + "\n").encode())


def _summary(plan: Plan, result: Mapping[str, Any]) -> list[str]:
    states = ", ".join(f"{n} {state}" for state, n in result["states"].items() if n)
    lines = [
        f"`{plan.config}`, {result['trials']} trials ({states}), sampler {plan.sampler}, "
        f"{plan.metric.goal} `{plan.metric.name}`.",
    ]
    if result["winner"] is not None:
        what = "the config's own values" if result["is_own"] else values_text(result["params"])
        lines.append(f"Winner: trial {result['winner']}: {what}.")
    if fresh := result.get("fresh"):
        lines.append(fresh_text(fresh, result["run"]))
    if result.get("verdict"):
        lines.append(f"Verdict: {result['verdict']}.")
    return lines


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


def _trial_table(plan: Plan, trials: Sequence[Trial]) -> str:
    on_front = {trial.number for trial in front(plan, trials)} if plan.cost else set()
    rows = []
    for trial in ranked(plan, trials)[:MOST_ROWS]:
        values = plan.space().decode(trial.latents)
        own = " (own values)" if trial.attrs.get("own") else ""
        rows.append(
            (
                f"{trial.number}{'*' * (trial.number in on_front)}{own}",
                number_text(trial.value),
                f"{trial.attrs.get('env_steps') or 0:,.0f}",
                *(value_text(values.get(name)) for name in plan.params),
            )
        )
    return markdown_table(("trial", plan.metric.name, "env steps", *plan.params), rows)


def number_text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def value_text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def values_text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value_text(value)}" for name, value in values.items())


# -- pictures: each parameter against the score, the history, and score against cost --------------


def draw_all(sweep: Sweep, plan: Plan, trials: Sequence[Trial]) -> list[str]:
    """Write the pictures into the folder; returns their names."""
    over = [t for t in trials if t.state in (COMPLETE, PRUNED) and t.value is not None]
    if len(over) < 2:
        return []
    draw_params(sweep.path / "params.png", plan, over)
    draw_history(sweep.path / "history.png", plan, over)
    names = ["params.png", "history.png"]
    if plan.cost is not None or len({trial.cost for trial in over}) > 1:
        draw_pareto(sweep.path / "pareto.png", plan, over)
        names.append("pareto.png")
    return names


def draw_params(path: Path, plan: Plan, trials: Sequence[Trial]) -> None:
    """One panel per parameter, the most important first."""
    shares = importances(plan, trials)
    order = sorted(plan.space().params, key=lambda param: -shares.get(param.name, 0.0))
    n_columns = min(3, len(order))
    with saved_figure(path, len(order), n_columns, (4.2, 3.1)) as axes:
        for i, (ax, param) in enumerate(zip(axes, order, strict=True)):
            _draw_param(ax, param, plan, trials)
            share = f", importance {shares[param.name]:.0%}" if param.name in shares else ""
            ax.set_title(f"{param.name}{share}")
            ax.set_ylabel(plan.metric.name if i % n_columns == 0 else "")


def _draw_param(ax: "Axes", param: Param, plan: Plan, trials: Sequence[Trial]) -> None:
    latent, scale = param.latent(), SCALES.get(str(param.distribution).partition(":")[0])
    seen = [trial for trial in trials if param.name in trial.latents]
    seen.sort(key=lambda trial: plan.sign * (trial.value or 0.0))  # the best are drawn last
    places = [param.distribution.decode(trial.latents[param.name]) for trial in seen]
    if isinstance(latent, Options):
        options = [param.distribution.decode(option) for option in latent.options]
        places = [options.index(value) for value in places]
        ax.set_xticks(range(len(options)), [str(option) for option in options])
    elif scale == "logit":
        ax.set_xscale("logit")
        ax.minorticks_off()
    elif scale == "log":
        ax.set_xscale("log", base=2 if str(param.distribution).startswith("pow2") else 10)
    ax.scatter(
        places, _values(seen), c=[trial.number for trial in seen], cmap="viridis", s=26, alpha=0.85,
        linewidths=0, zorder=3,
    )  # fmt: skip


def draw_history(path: Path, plan: Plan, trials: Sequence[Trial]) -> None:
    """The trials in their order, and the best so far."""
    with saved_figure(path, 1, 1, (8, 3.8)) as (ax,):
        for state, colour, label in ((COMPLETE, COLOURS[0], "trial"), (PRUNED, GREY, "pruned")):
            if some := [trial for trial in trials if trial.state == state]:
                numbers = [trial.number for trial in some]
                ax.scatter(numbers, _values(some), s=22, color=colour, label=label)
        best, xs, ys = -math.inf, [], []
        for trial, value in valued(trials):
            best = max(best, plan.sign * value)
            xs.append(trial.number)
            ys.append(plan.sign * best)
        ax.step(xs, ys, where="post", color=COLOURS[1], label="best so far")
        ax.set(xlabel="trial", ylabel=plan.metric.name, title="search history")
        ax.legend()


def draw_pareto(path: Path, plan: Plan, trials: Sequence[Trial]) -> None:
    """Score against cost, with the front."""
    over = [trial for trial, _ in valued(trials)]
    with saved_figure(path, 1, 1, (7, 4.2)) as (ax,):
        ax.scatter([t.cost for t in over], _values(over), s=24, color=GREY, zorder=3)
        best = front(plan, over)
        ax.plot([t.cost for t in best], _values(best), "o-", color=COLOURS[1],
                label="not beaten in both")  # fmt: skip
        for trial in best:
            ax.annotate(str(trial.number), (trial.cost, trial.value or 0.0), fontsize=8,
                        xytext=(4, 4), textcoords="offset points")  # fmt: skip
        cost = {"wall_s": "seconds of training"}.get(plan.cost or "", "env steps")
        ax.set(xlabel=cost, ylabel=plan.metric.name, title="score against cost")
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
