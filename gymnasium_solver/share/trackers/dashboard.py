"""A W&B workspace for the runs of a project: returns, losses, speed, hyper-parameters over env
steps."""

import json
from collections.abc import Mapping
from typing import Any

from gymnasium_solver.runs.metrics import METRICS
from gymnasium_solver.share.trackers.sink import TrackError

# Sections and the groups of metrics in them.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Returns": ("val/roll", "train/roll", "test/roll"),
    "Learning": ("train/opt",),
    "Hyper-parameters": ("train/hp",),
    "Speed": ("train/sys",),
}
LEFT_OUT = ("obs", "actions", "reward", "return", "adv", "adv_norm", "baseline", "activations")
NAME = "gymnasium-solver"


def workspace(entity: str, project: str) -> Any:
    try:
        import wandb_workspaces.reports.v2 as wr
        import wandb_workspaces.workspaces as ws
    except ImportError:
        raise TrackError(
            "the dashboard needs wandb-workspaces: pip install 'gymnasium-solver[wandb]'"
        ) from None
    sections = []
    for title, groups in SECTIONS.items():
        panels: list[Any] = [
            wr.LinePlot(title=name, x="env_steps", y=[name])
            for name in metric_names()
            if name.startswith(tuple(f"{group}/" for group in groups))
        ]
        sections.append(ws.Section(name=title, panels=panels, is_open=title == "Returns"))
    videos = wr.MediaBrowser(media_keys=["video"])
    sections.append(ws.Section(name="Videos", panels=[videos]))
    settings = ws.WorkspaceSettings(x_axis="env_steps", max_runs=20)
    return ws.Workspace(
        entity=entity, project=project, name=NAME, sections=sections, settings=settings
    )


def metric_names() -> list[str]:
    """The declared metrics that are worth a panel."""
    return [
        name
        for name, metric in METRICS.items()
        if not metric.is_pattern and name.count("/") >= 2 and name.split("/")[2] not in LEFT_OUT
    ]


def as_json(made: Any) -> dict[str, Any]:
    """What would be sent to W&B."""
    view = made._to_model()
    spec = view.spec if hasattr(view, "spec") else view
    text = spec.model_dump_json(by_alias=True, exclude_none=True)
    content: dict[str, Any] = json.loads(text)
    return content


def save(made: Any) -> str:
    try:
        made.save()
    except Exception as error:
        raise TrackError(f"W&B: {(str(error).splitlines() or [''])[0]}") from None
    return str(made.url)
