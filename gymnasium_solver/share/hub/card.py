"""The scores of a run (results.json), and its model card: README.md of a published run, with the
metadata that the Hub reads.

The form is the one of the RL zoo: `mean_reward` as "500.00 +/- 0.00" in the model index, the tags
of its leaderboards, and `replay.mp4`, which the Hub shows. Runs in the same folder whose configs
differ only by the seed are siblings (experiments/groups.py): their statistics over seeds are shown.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.experiments.groups import Group, group_runs
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, Estimate, interval, iqm, mean
from gymnasium_solver.printable import markdown_text
from gymnasium_solver.runs.query import RunSummary, get_details, list_runs
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import verdict_words
from gymnasium_solver.version import __version__

LIBRARY = "gymnasium-solver"


@dataclass(frozen=True)
class Results:
    """results.json: the zoo's names, then ours."""

    mean_reward: float | None
    std_reward: float | None
    is_deterministic: bool
    n_eval_episodes: int
    eval_datetime: str
    stderr_reward: float | None
    solved: bool | None
    threshold: float | None
    env_steps: int
    seeds: dict[str, Any] | None
    """Statistics over the seeds of this config, if several were trained."""

    @property
    def text(self) -> str:
        """As the zoo writes it: the mean and the standard deviation of the episodes."""
        if self.mean_reward is None:
            return "not tested"
        return f"{self.mean_reward:.2f} +/- {self.std_reward or 0.0:.2f}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_results(run: Run, summary: RunSummary, root: Path) -> Results:
    """The held-out test of the run; without one its best validation."""
    details = get_details(run)
    events, tests = details.evaluations, details.tests
    judged = [e for e in tests if summary.test and e.get("greedy") == summary.test["greedy"]]
    best = None if summary.best is None else summary.best["env_steps"]
    shown = judged or tests or [e for e in events if e.get("env_steps") == best] or events
    event = shown[-1] if shown else {}
    return Results(
        mean_reward=event.get("mean"),
        std_reward=event.get("std"),
        is_deterministic=bool(event.get("greedy", True)),
        n_eval_episodes=int(event.get("episodes") or 0),
        eval_datetime=str(event.get("at", "")),
        stderr_reward=event.get("stderr"),
        solved=summary.solved,
        threshold=summary.threshold,
        env_steps=int(event.get("env_steps") or summary.env_steps),
        seeds=_seeds(run, summary, root),
    )


def _seeds(run: Run, summary: RunSummary, root: Path) -> dict[str, Any] | None:
    group = siblings(run, summary, root)
    if group is None or len(group.scores) < 2:
        return None
    scores = group.scores
    found: dict[str, Any] = {
        "n": len(scores),
        "n_solved": group.n_solved,
        "scores": scores,
        "mean": interval(scores, mean).to_dict(),
    }
    if len(scores) >= FEWEST_SEEDS:
        found["iqm"] = interval(scores, iqm).to_dict()
    return found


def siblings(run: Run, summary: RunSummary, root: Path) -> Group | None:
    """The finished runs of the same config, this one included."""
    if run.path.resolve().parent != root.resolve():
        return None
    same = [
        other.id
        for other in list_runs(root)
        if (other.env_id, other.algo_id) == (summary.env_id, summary.algo_id)
        and other.status == "finished"
    ]
    try:
        groups = group_runs([str(root / name) for name in same], root)
    except GsolveError:  # a sibling that cannot be read is no reason not to publish
        return None
    for group in groups:
        if any(member.summary.id == summary.id for member in group.members):
            return group
    return None


# -- the card ---------------------------------------------------------------------------------


def model_card(
    summary: RunSummary, results: Results, repo_id: str, files: list[str], licence: str
) -> str:
    name = f"{summary.algo_id.upper()} agent playing {summary.env_id}"
    sections = [
        f"---\n{dump_yaml(metadata(summary, results, licence)).strip()}\n---",
        f"# {markdown_text(name)}",
        f"A trained agent of `{LIBRARY}`.",
        _verdict(summary, results),
        _seeds_text(results),
        "## Learning curve\n\n![learning curve](curves.png)" if "curves.png" in files else "",
        _use(repo_id),
        _reproduce(),
        _config(summary),
        f"## Licence\n\n{licence}",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def metadata(summary: RunSummary, results: Results, licence: str) -> dict[str, Any]:
    """The YAML block of the card, as huggingface_hub's ModelCardData writes it."""
    tags = [summary.env_id, summary.algo_id, "reinforcement-learning"]
    tags += ["deep-reinforcement-learning", LIBRARY]
    data: dict[str, Any] = {
        "library_name": LIBRARY,
        "license": licence,
        "pipeline_tag": "reinforcement-learning",
        "tags": tags,
    }
    if results.mean_reward is None:
        return data
    metric = {"type": "mean_reward", "value": results.text, "name": "mean_reward"}
    data["model-index"] = [
        {
            "name": summary.algo_id.upper(),
            "results": [
                {
                    "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                    "dataset": {"name": summary.env_id, "type": summary.env_id},
                    "metrics": [{**metric, "verified": False}],
                }
            ],
        }
    ]
    return data


def _verdict(summary: RunSummary, results: Results) -> str:
    actions = "greedy" if results.is_deterministic else "sampled"
    threshold = "none" if results.threshold is None else f"{results.threshold:g}"
    rows = [
        ("verdict", verdict_words(summary)),
        ("mean return", f"{results.text} (standard deviation)"),
        (
            "standard error",
            "-" if results.stderr_reward is None else f"{results.stderr_reward:.3g}",
        ),
        ("episodes", f"{results.n_eval_episodes} held-out, {actions} actions"),
        ("threshold", threshold),
        ("trained for", f"{summary.env_steps:,} env steps"),
        ("seed", str(summary.seed)),
    ]
    lines = [f"| {what} | {markdown_text(value)} |" for what, value in rows]
    return "\n".join(["## Result", "", "| | |", "| --- | --- |", *lines])


def _seeds_text(results: Results) -> str:
    seeds = results.seeds
    if seeds is None:
        return ""
    shown = [("mean", seeds["mean"])]
    shown += [("interquartile mean", seeds["iqm"])] if "iqm" in seeds else []
    told = ", ".join(
        f"{name} {one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
        for name, one in ((name, Estimate(**estimate)) for name, estimate in shown)
    )
    return (
        f"## Seeds\n\nOver {seeds['n']} seeds of this config, {seeds['n_solved']} solved: {told} "
        "(95 % bootstrap intervals over seeds)."
    )


def _use(repo_id: str) -> str:
    return f"""## Use

```sh
pip install {LIBRARY} huggingface_hub
gsolve pull {repo_id}
gsolve eval hub:{repo_id} --episodes 100
```

```python
import gymnasium_solver as gs

agent = gs.load("hub:{repo_id}")
env = gs.make_env("hub:{repo_id}")
obs, info = env.reset()
action = agent.act(obs)
```

The weights are safetensors; no file of this repository is a pickle."""


def _reproduce() -> str:
    return f"""## Reproduce

`config.yaml` is the whole config, with the seed. On the CPU the same versions give the same
weights, bit for bit:

```sh
gsolve train config.yaml
```

Written by {LIBRARY} {__version__}; `meta.json` has all versions."""


def _config(summary: RunSummary) -> str:
    config = {k: v for k, v in (summary.config or {}).items() if k not in ("spec", "description")}
    block = f"```yaml\n{dump_yaml(config).strip()}\n```"
    return f"## Config\n\n<details><summary>All fields</summary>\n\n{block}\n\n</details>"
