"""The declared metrics by name, and names of other systems.

Names are `<train|val|test>/<group>/<metric>`. A row of metrics.jsonl is
    {"env_steps": int, "epoch": int, "wall_s": float, "<name>": number or null, ...}
Undeclared names may be logged too; `describe` then returns neutral properties. The declarations are
in declared.py, the names of other systems in metric_aliases.py.
"""

from functools import lru_cache

from gymnasium_solver.runs.declared import all_metrics
from gymnasium_solver.runs.metric import Better, Metric

__all__ = [
    "METRICS",
    "PANELS",
    "SPREAD",
    "TRAIN",
    "VAL",
    "Better",
    "Metric",
    "describe",
    "find_metrics",
]

TRAIN, VAL, SPREAD = "train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "val/roll/ep_rew/std"
"""Names of the returns that a chart shows."""
PANELS = (
    "train/opt/loss/policy",
    "train/opt/loss/value",
    "train/opt/loss/critic",
    "train/opt/loss/td",
    "train/opt/loss/imitation",
    "train/opt/loss/held_out",
    "train/opt/imitation/accuracy",
    "train/opt/q/mean",
    "train/opt/policy/entropy",
    "train/opt/policy/alpha",
    "train/opt/value/explained_var",
    "train/opt/ppo/approx_kl",
    "train/hp/epsilon",
    "train/roll/ep_len/mean",
)
"""Drawn below the returns of a single run, if they were logged and changed."""

_SHOWN_LAST = 1_000

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in sorted(
        all_metrics(), key=lambda m: _SHOWN_LAST if m.priority is None else m.priority
    )
}
"""Declared metrics; those of the console table first, in its order."""
_PATTERNS = [metric for metric in METRICS.values() if metric.is_pattern]


@lru_cache(maxsize=4096)
def describe(name: str) -> Metric:
    """The declaration of this metric, or neutral properties."""
    metric = METRICS.get(name)
    if metric is not None:
        return metric
    for pattern in _PATTERNS:
        if (found := pattern.of(name)) is not None:
            return found
    return Metric(name, "", group="/".join(name.split("/")[:2]))


def find_metrics(text: str | None = None) -> list[Metric]:
    """The declared metrics that have every word of `text` in their name or description."""
    words = (text or "").lower().split()
    return [
        metric
        for metric in METRICS.values()
        if all(word in f"{metric.name} {metric.description}".lower() for word in words)
    ]
