"""Judges a run from its folder."""

from gymnasium_solver.runs import query
from gymnasium_solver.runs.alert import Alert
from gymnasium_solver.runs.alerts.facts import Facts
from gymnasium_solver.runs.alerts.judge import Judge, judge_rows
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run


def facts_of(run: Run) -> Facts:
    return Facts(query.get_config(run), run.meta())


def judge_run(run: Run) -> tuple[list[Alert], Judge]:
    """The alerts of a run, finished or running, and the judge after its last row."""
    judge = Judge(facts_of(run))
    rows, events = read_jsonl(run.metrics_path), read_jsonl(run.events_path)
    return judge_rows(judge, rows, events), judge
