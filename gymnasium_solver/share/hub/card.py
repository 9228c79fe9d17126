"""The model card: README.md of a published run, with the metadata that the Hub reads.

The form is the one of the RL zoo: `mean_reward` as "500.00 +/- 0.00" in the model index, the tags
of its leaderboards, and `replay.mp4`, which the Hub shows.
"""

import shlex
from typing import Any

from gymnasium_solver import __version__
from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.printable import markdown_text
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.words import verdict_words
from gymnasium_solver.share.hub.results import Results, estimate_text

LIBRARY = "gymnasium-solver"


def model_card(
    summary: RunSummary, results: Results, repo_id: str, files: list[str], licence: str
) -> str:
    name = f"{summary.algo_id.upper()} agent playing {summary.env_id}"
    sections = [
        f"---\n{dump_yaml(metadata(summary, results, licence)).strip()}\n---",
        f"# {markdown_text(name)}",
        f"A trained agent of `{LIBRARY}`.",
        _verdict(summary, results),
        _seeds(results),
        "## Learning curve\n\n![learning curve](curves.png)" if "curves.png" in files else "",
        _use(repo_id),
        _reproduce(summary),
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
    if results.mean is None:
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
    actions = "greedy" if results.is_greedy else "sampled"
    threshold = "none" if results.threshold is None else f"{results.threshold:g}"
    rows = [
        ("verdict", verdict_words(summary)),
        ("mean return", f"{results.text} (standard deviation)"),
        ("standard error", "-" if results.stderr is None else f"{results.stderr:.3g}"),
        ("episodes", f"{results.episodes} held-out, {actions} actions"),
        ("threshold", threshold),
        ("trained for", f"{summary.env_steps:,} env steps"),
        ("seed", str(summary.seed)),
    ]
    lines = [f"| {what} | {markdown_text(value)} |" for what, value in rows]
    return "\n".join(["## Result", "", "| | |", "| --- | --- |", *lines])


def _seeds(results: Results) -> str:
    seeds = results.seeds
    if seeds is None:
        return ""
    lines = [
        f"Over {seeds['n']} seeds of this config, {seeds['n_solved']} solved: "
        f"mean {estimate_text(seeds['mean'])}"
    ]
    if "iqm" in seeds:
        lines.append(f", interquartile mean {estimate_text(seeds['iqm'])}")
    return "## Seeds\n\n" + "".join(lines) + " (95 % bootstrap intervals over seeds)."


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


def _reproduce(summary: RunSummary) -> str:
    command = shlex.join(["gsolve", "train", "config.yaml"])
    return f"""## Reproduce

`config.yaml` is the whole config, with the seed. On the CPU the same versions give the same
weights, bit for bit:

```sh
{command}
```

Written by {LIBRARY} {__version__}; `meta.json` has all versions."""


def _config(summary: RunSummary) -> str:
    config = {k: v for k, v in (summary.config or {}).items() if k not in ("spec", "description")}
    block = f"```yaml\n{dump_yaml(config).strip()}\n```"
    return f"## Config\n\n<details><summary>All fields</summary>\n\n{block}\n\n</details>"
