"""The report of a sweep: report.md and its pictures, made from the folder alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium_solver.experiments.search.folder import Sweep
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.experiments.search.plan import Plan
from gymnasium_solver.experiments.search.ranking import front, importances, ranked
from gymnasium_solver.runs.files import write_atomic

MOST_ROWS = 20


def write_report(
    sweep: Sweep, plan: Plan, trials: Sequence[Trial], result: Mapping[str, Any]
) -> None:
    """Write report.md and, where matplotlib is installed, its pictures."""
    pictures = _pictures(sweep, plan, trials)
    lines = [f"# Sweep {sweep.id}", "", *_summary(plan, result), ""]
    if result["final"]:
        lines += ["## Final on fresh seeds", "", *_final_table(plan, result), ""]
        if result.get("choice"):
            lines += [choice_text(result), ""]
    lines += ["## Importance", "", *_importance(plan, trials), ""]
    lines += [f"![{name}]({name})" for name in pictures] + [""] * bool(pictures)
    lines += ["## Best trials of the search", "", *_trial_table(plan, trials), ""]
    lines += [
        "Scores in this table are those of the search: the best of many is too good. Quote the "
        "final.",
        "",
        "## Searched",
        "",
        *_table(("parameter", "range"), [(n, f"`{text}`") for n, text in plan.params.items()]),
        "",
        f"Repeat: `gsolve sweep {sweep.path.name}/sweep.yaml` with the same version. Continue or "
        f"extend: `gsolve sweep --resume {sweep.id}`.",
        "",
    ]
    write_atomic(sweep.report_path, "\n".join(lines).encode())


def _pictures(sweep: Sweep, plan: Plan, trials: Sequence[Trial]) -> list[str]:
    try:
        from gymnasium_solver.experiments.search.pictures import draw_all
    except ImportError:
        return []
    return draw_all(sweep, plan, trials)


def _summary(plan: Plan, result: Mapping[str, Any]) -> list[str]:
    states = ", ".join(f"{n} {state}" for state, n in result["states"].items() if n)
    lines = [
        f"`{plan.config}`, {result['trials']} trials ({states}), sampler {plan.sampler}, "
        f"{plan.metric.goal} `{plan.metric.name}`.",
    ]
    if result["winner"] is not None:
        what = "the config's own values" if result["is_own"] else values_text(result["params"])
        lines += ["", f"Winner: trial {result['winner']}: {what}."]
    if fresh := result.get("fresh"):
        lines += ["", fresh_text(fresh, result["run"])]
    if result.get("verdict"):
        lines += ["", f"Verdict: {result['verdict']}."]
    return lines


def fresh_text(fresh: Mapping[str, Any], run: str) -> str:
    """The score of the agent that a population has trained."""
    error = f" +- {number_text(fresh['stderr'])}" if fresh.get("stderr") is not None else ""
    return f"Agent: {number_text(fresh['mean'])}{error} over {fresh['episodes']} episodes: {run}"


def _final_table(plan: Plan, result: Mapping[str, Any]) -> list[str]:
    heads = ("trial", plan.metric.name, "test score", "95 % interval", "solved", "env steps")
    rows = []
    for row in result["final"]:
        name = f"{row['trial']}{' (own values)' if row['own'] else ''}"
        low_high = row.get("interval")
        rows.append(
            (
                name,
                number_text(row["value"]),
                number_text(row["score"]),
                f"{number_text(low_high[0])} to {number_text(low_high[1])}" if low_high else "",
                f"{row['solved']}/{row['seeds']}",
                f"{row['env_steps']:,.0f}",
            )
        )
    return _table(heads, rows)


def choice_text(result: Mapping[str, Any]) -> str:
    """How one of several finalists was chosen."""
    found = ", ".join(f"{row['trial']} ({number_text(row['value'])})" for row in result["choice"])
    return (
        f"Chosen from the trials {found} by {len(result['choice_seeds'])} fresh seeds. The seeds "
        "of the table had no part in any choice."
    )


def _importance(plan: Plan, trials: Sequence[Trial]) -> list[str]:
    found = importances(plan, trials)
    if not found:
        return ["Too few trials to tell which parameters matter."]
    rows = [(name, f"{share:.0%}") for name, share in found.items()]
    return _table(("parameter", "share of the variance explained"), rows)


def _trial_table(plan: Plan, trials: Sequence[Trial]) -> list[str]:
    names = list(plan.params)
    on_front = {trial.number for trial in front(plan, trials)} if plan.cost else set()
    heads = ("trial", plan.metric.name, "env steps", *names)
    space = plan.space()
    rows = []
    for trial in ranked(plan, trials)[:MOST_ROWS]:
        values = space.decode(trial.latents)
        mark = "*" if trial.number in on_front else ""
        own = " (own values)" if trial.attrs.get("own") else ""
        rows.append(
            (
                f"{trial.number}{mark}{own}",
                number_text(trial.value),
                f"{trial.attrs.get('env_steps') or 0:,.0f}",
                *(value_text(values.get(name)) for name in names),
            )
        )
    lines = _table(heads, rows)
    return [*lines, "", "\\* on the Pareto front of score and cost."] if plan.cost else lines


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


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
