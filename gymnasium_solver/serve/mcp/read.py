"""Tools that read: configs, runs, metrics, logs, diagnoses, comparisons."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp_types import CallToolResult

from gymnasium_solver.config.find import find_configs
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.mcp import facts, series
from gymnasium_solver.serve.mcp.answers import answer, bounded
from gymnasium_solver.serve.mcp.commands import field_docs, shown_config
from gymnasium_solver.serve.mcp.names import NO_FIELDS, run_named, runs_named
from gymnasium_solver.serve.mcp.settings import Settings
from gymnasium_solver.serve.mcp.sql import matching

SECTIONS = {
    "progress": facts.progress,
    "config": facts.config,
    "checkpoints": facts.checkpoints,
    "evals": facts.evaluations,
    "alerts": facts.alerts,
    "hyperparams": facts.hyperparams,
    "origin": facts.origin,
}


class ReadTools:
    def __init__(self, settings: Settings) -> None:
        self.root = settings.root

    def list_configs(self, filter: str = "", limit: int = 50) -> CallToolResult:
        """Configs that can be trained, named <env>:<variant>. filter: words of a name, suite or
        description; * and ? match names."""
        entries = find_configs(filter.strip() or None)
        rows = [
            {"config": e.name, "algo": e.algo_id, "suite": e.suite, "about": e.description[:120]}
            for e in entries[: bounded(limit)]
        ]
        return answer({"total": len(entries), "configs": rows})

    def get_config(
        self, config: str, overrides: dict[str, Any] = NO_FIELDS, explain: Sequence[str] = ()
    ) -> CallToolResult:
        """The resolved fields of a config (<env>:<variant>, or a run), after overrides.
        explain: fields to describe, or parts of their names."""
        found = shown_config(config, overrides, self.root)
        if not explain:
            return answer({"config": facts.without_spec(found)})
        return answer({"fields": facts.explained(found, field_docs(), explain)})

    def list_runs(self, filter: str = "", sort: str = "", limit: int = 20) -> CallToolResult:
        """Runs, newest first. filter: words and conditions, such as "CartPole solved test>400
        policy_lr<0.01 tag=paper". sort: test, val, steps, time, seed, fps or a config field, best
        first; -field: lowest first. The best run: sort="test", limit=1."""
        found = query.list_runs(self.root, filter, sort.strip() or None)
        rows = [facts.row(run) for run in found[: bounded(limit)]]
        return answer({"total": len(found), "runs": rows})

    def get_run(
        self,
        run: str,
        sections: Sequence[
            Literal["progress", "config", "checkpoints", "evals", "alerts", "hyperparams", "origin"]
        ] = ("progress",),
    ) -> CallToolResult:
        """Status, verdict and sections of a run. A run is @last, an id, or a unique part of one.
        hyperparams: their history; origin: command, versions, machine, resumes."""
        found = run_named(run, self.root)
        data = facts.summary(found)
        for name in sections:
            data[name] = SECTIONS[name](found)
        return answer(data)

    def get_metrics(
        self,
        run: str,
        names: Sequence[str] = (),
        stat: Literal["points", "summary", "trend"] = "points",
        start: int = 0,
        end: int = 0,
        around: int = -1,
        limit: int = 50,
    ) -> CallToolResult:
        """Metrics of a run over env steps. Without names: which there are, with the last value.
        names: whole ones, parts (kl), wildcards (train/opt/*), names of other libraries.
        start, end: a range of env steps. around: all metrics in the rows next to this env step.
        trend: slope and change in the range."""
        found = run_named(run, self.root)
        rows = query.get_rows(found)
        if around >= 0:
            return answer({"run": found.id, **series.around(rows, around, names, bounded(limit))})
        chosen = series.chosen(rows, names, start, end or None)
        if not names:
            return answer({"run": found.id, "metrics": series.catalogue(chosen)})
        if stat == "points":
            return answer({"run": found.id, **series.points(chosen, bounded(limit))})
        describe = series.summary if stat == "summary" else series.trend
        return answer({"run": found.id, stat: [describe(n, c) for n, c in chosen.items()]})

    def get_logs(self, run: str, lines: int = 40, pattern: str = "") -> CallToolResult:
        """The last lines of a run's log. pattern: only lines that match this regular expression,
        without regard to case."""
        found = run_named(run, self.root)
        text = [line[:500] for line in facts.log_lines(found)]
        if pattern:
            text = matching(text, pattern)
        kept = text[-bounded(lines) :]
        return answer({"run": found.id, "lines_in_all": len(text), "log": kept})

    def diagnose(self, run: str) -> CallToolResult:
        """Judge a run: problems with what they usually mean and what to try, progress, score
        against random actions and the threshold, recent metrics. Start here to debug."""
        return answer(facts.diagnosis(run_named(run, self.root)))

    def compare_runs(self, runs: list[str], metric: str = "", baseline: str = "") -> CallToolResult:
        """Compare runs. Runs that differ only by the seed form a group; the first group is the
        baseline, or baseline: a run, or "best" for the best other run of the same env. Without
        metric: held-out scores with intervals, and a verdict. metric: last, best and mean of
        the last tenth."""
        found = runs_named(runs, self.root)
        if baseline:
            found = [self._baseline(baseline, found), *found]
        found = list({run.id: run for run in found}.values())
        if metric:
            return answer({"metric": metric, "runs": [series.outcome(r, metric) for r in found]})
        return answer(facts.comparison([run.id for run in found], self.root))

    def _baseline(self, name: str, others: Sequence[Run]) -> Run:
        if name != "best":
            return run_named(name, self.root)
        env_id = query.get_run(others[0]).env_id
        ids = {run.id for run in others}
        ranked = query.list_runs(self.root, [f"env={env_id}"], "test")
        tested = [run for run in ranked if run.test is not None and run.id not in ids]
        if not tested:
            raise RunError(f"no other run of {env_id} was tested; give a run as the baseline")
        return run_named(tested[0].id, self.root)
