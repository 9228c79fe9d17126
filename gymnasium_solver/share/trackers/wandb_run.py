"""Weights & Biases: a run with our id, config, metrics over env_steps, videos, alerts, checkpoints;
a workspace for them; and runs that are fetched back. And Trackio, which has W&B's interface.

Row i of metrics.jsonl is step i. So the server itself says how many rows it has, and a follower
that was killed continues there; a rewind is W&B's own (`resume_from`). Offline, W&B cannot resume:
a follower that is started again writes its offline folder anew, from the first row.

`WANDB_*` variables count as always: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_GROUP, ...
"""

import hashlib
import importlib
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import GsolveError, RunError, first_line, needing, told_as
from gymnasium_solver.experiments.experiment import FILE, FOLDER, load
from gymnasium_solver.experiments.groups import identity_of
from gymnasium_solver.paths import temporary_folder
from gymnasium_solver.runs.checkpoint import BEST, LAST, find_checkpoint
from gymnasium_solver.runs.curves import event_rows
from gymnasium_solver.runs.files import read_json, write_pointer
from gymnasium_solver.runs.manage import read_labels
from gymnasium_solver.runs.metrics import METRICS
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.share.trackers.follow import Sent, Sink, Subject, TrackError, numbers

RUN_FILES = (
    *("config.yaml", "meta.json", "metrics.jsonl", "events.jsonl"),
    *("report.md", "labels.json"),
)
DEFAULT_PROJECT = "gymnasium-solver"


def wandb_module() -> Any:
    os.environ.setdefault("WANDB_SILENT", "true")
    with needing("W&B needs its package: pip install 'gymnasium-solver[wandb]'", TrackError):
        import wandb
    return wandb


class WandbSink(Sink):
    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        self._subject = subject
        self._wandb = wandb_module()
        self._mode = chosen_mode(subject.options.mode)
        if self._mode != "online":
            self._drop_offline()
            self._init()
            return Sent()
        self._init(resume="allow")
        # The server knows the rows that arrived; a row that did not is sent again.
        rows = min(sent.rows, int(self._run.step)) if self._run.resumed else 0
        self._at = rows
        return Sent(rows, sent.events if rows else 0)

    def _init(self, **how: Any) -> None:
        subject, options = self._subject, self._subject.options
        config = subject.config
        env = os.environ
        labels = read_labels(subject.run)
        given = {
            "project": options.project or env.get("WANDB_PROJECT") or project_of(config),
            "entity": options.entity,
            "group": env.get("WANDB_RUN_GROUP") or group_of(subject.run, config),
            "job_type": env.get("WANDB_JOB_TYPE") or f"seed-{config.get('seed')}",
            "name": env.get("WANDB_NAME") or subject.run.id,
            "notes": env.get("WANDB_NOTES") or labels.note or None,
            "tags": [str(config["env_id"]), str(config["algo_id"]), *labels.tags],
        }
        settings = self._wandb.Settings(
            silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False
        )
        folder = env.get("WANDB_DIR") or str(subject.folder)
        with told_as(TrackError, "W&B", self._wandb.Error):
            self._run = self._wandb.init(
                id=run_id(subject.run.id), dir=folder, config=dict(config), mode=self._mode,
                settings=settings, **given, **how,
            )  # fmt: skip
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")
        self._at = 0
        self._folder = Path(self._run.dir).parent.absolute()
        self._url: str | None = self._run.url if self._mode == "online" else None

    def rewind(self, kept: Sent) -> Sent:
        self._run.finish()
        if self._mode != "online":
            self._drop_offline()
            self._init()
            return Sent()
        last = f"{run_id(self._subject.run.id)}?_step={kept.rows - 1}"
        self._init(**({"resume_from": last} if kept.rows else {"resume": "allow"}))
        self._at = kept.rows
        return kept

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        self._at = index
        self._run.log(numbers(row) | {"env_steps": row["env_steps"]}, step=index)

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        for row in event_rows([event], self._subject.run.meta()):
            self._log(numbers(row))
        step, kind = int(event.get("env_steps") or 0), event.get("kind")
        if kind == "video":
            path = self._subject.run.path / str(event.get("path"))
            if path.is_file():
                film = self._wandb.Video(str(path), format=path.suffix.removeprefix("."))
                self._log({"video": film})
        elif kind == "alert" and not event.get("is_over"):
            level = self._wandb.AlertLevel.WARN
            text = f"{event.get('text', '')} {event.get('advice', '')}".strip()
            self._run.alert(title=str(event.get("name")), text=text, level=level)
        elif kind == "config" and isinstance(event.get("changed"), dict):
            pairs = [(k, v) for k, v in event["changed"].items() if isinstance(v, list)]
            new = {name: pair[1] for name, pair in pairs if len(pair) == 2}
            self._run.config.update(new, allow_val_change=True)
        elif kind == "checkpoint" and self._subject.options.checkpoints:
            self._save_checkpoint(step, str(event.get("reason")))

    def _log(self, values: dict[str, Any]) -> None:
        """Values of an event join the last row, and its env_steps."""
        if values:
            self._run.log(values, step=self._at)

    def _save_checkpoint(self, env_steps: int, reason: str) -> None:
        """One version per checkpoint; W&B uploads only files that changed."""
        folder = find_checkpoint(self._subject.run.checkpoints_dir, env_steps)
        if folder is None or reason not in ("best", "last"):
            return  # removed since, or one of many
        artifact = self._wandb.Artifact(
            artifact_name("checkpoint", self._subject.run.id),
            "model",
            metadata={"env_steps": env_steps},
        )
        artifact.add_dir(str(folder))
        self._run.log_artifact(artifact, aliases=[reason, f"step-{env_steps}", "latest"])

    def commit(self) -> dict[str, Any]:
        return {"url": self._url, "folder": str(self._folder), "mode": self._mode}

    def close(self, summary: RunSummary) -> str:
        result: dict[str, Any] = {"status": summary.status, "solved": summary.solved}
        for kind, scores in (("test", summary.test), ("best", summary.best)):
            result |= {f"{kind}/{name}": value for name, value in (scores or {}).items()}
        self._run.summary.update({k: v for k, v in result.items() if v is not None})
        artifact = self._wandb.Artifact(artifact_name("run", self._subject.run.id), "run")
        for name in RUN_FILES:
            if (path := self._subject.run.path / name).exists():
                artifact.add_file(str(path))
        self._run.log_artifact(artifact)
        self._run.finish(exit_code=1 if summary.status == "failed" else 0)
        return self._url or f"wandb sync {self._folder}"

    def _drop_offline(self) -> None:
        """Remove the offline folders of this run: its rows are written again."""
        folder = Path(os.environ.get("WANDB_DIR") or self._subject.folder) / "wandb"
        for old in folder.glob(f"offline-run-*-{run_id(self._subject.run.id)}"):
            with suppress(OSError):
                shutil.rmtree(old)


def chosen_mode(wanted: str | None) -> str:
    """The mode as asked, else as WANDB_MODE says, else online if a key is configured, which is not
    asked for."""
    mode = wanted or os.environ.get("WANDB_MODE")
    if mode in ("online", "offline", "disabled"):
        return mode
    if mode in ("dryrun", "dry-run"):
        return "offline"
    if mode is not None:
        raise TrackError(f"W&B mode {mode!r}: expected online or offline")
    if os.environ.get("WANDB_API_KEY"):
        return "online"
    from wandb.sdk.lib.wbauth import wbnetrc

    host = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    with suppress(Exception):  # a damaged netrc says nothing about the run
        if wbnetrc.read_netrc_auth(host=host) is not None:
            return "online"
    return "offline"


def run_id(name: str) -> str:
    """Our id; W&B forbids a few characters that a folder may have."""
    return re.sub(r"[/\\#?%:]", "-", name)[:128]


def artifact_name(kind: str, name: str) -> str:
    """`kind`: run or checkpoint."""
    plain = re.sub(r"[^\w.-]", "-", name)
    return f"{kind}-{plain[:110]}"


def project_of(config: Mapping[str, Any]) -> str:
    return run_id(str(config.get("project_id") or DEFAULT_PROJECT))


def group_of(run: Run, config: Mapping[str, Any]) -> str:
    """The newest experiment that names this run, or the config without the seed: runs that differ
    only by it share a group."""
    files = sorted(run.path.absolute().parent.glob(f"{FOLDER}/*/{FILE}"), reverse=True)
    for folder in (path.parent for path in files):
        with suppress(GsolveError):  # a damaged experiment says nothing about this run
            if any(member.run == run.id for member in load(folder).members):
                return folder.name[:128]
    digest = hashlib.sha256(identity_of(config).encode()).hexdigest()
    return f"{config['env_id']}:{config.get('variant') or config['algo_id']}-{digest[:8]}"[:128]


# -- a workspace ------------------------------------------------------------------------------

# Sections and the groups of metrics in them.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Returns": ("val/roll", "train/roll", "test/roll"),
    "Learning": ("train/opt",),
    "Hyper-parameters": ("train/hp",),
    "Speed": ("train/sys",),
}
LEFT_OUT = ("obs", "actions", "reward", "return", "adv", "adv_norm", "baseline", "activations")


def workspace(entity: str, project: str) -> Any:
    with needing(
        "the dashboard needs wandb-workspaces: pip install 'gymnasium-solver[wandb]'", TrackError
    ):
        import wandb_workspaces.reports.v2 as wr
        import wandb_workspaces.workspaces as ws
    names = [
        name
        for name, metric in METRICS.items()
        if not metric.is_pattern and name.count("/") >= 2 and name.split("/")[2] not in LEFT_OUT
    ]
    sections = []
    for title, groups in SECTIONS.items():
        panels: list[Any] = [
            wr.LinePlot(title=name, x="env_steps", y=[name])
            for name in names
            if name.startswith(tuple(f"{group}/" for group in groups))
        ]
        sections.append(ws.Section(name=title, panels=panels, is_open=title == "Returns"))
    videos = wr.MediaBrowser(media_keys=["video"])
    sections.append(ws.Section(name="Videos", panels=[videos]))
    settings = ws.WorkspaceSettings(x_axis="env_steps", max_runs=20)
    return ws.Workspace(
        entity=entity, project=project, name=DEFAULT_PROJECT, sections=sections, settings=settings
    )


def as_json(made: Any) -> dict[str, Any]:
    """What would be sent to W&B."""
    view = made._to_model()
    spec = getattr(view, "spec", view)
    return dict(spec.model_dump(mode="json", by_alias=True, exclude_none=True))


def save(made: Any) -> str:
    with told_as(TrackError, "W&B", Exception):
        made.save()
    return str(made.url)


# -- a run that is not here, from its files and checkpoints at W&B ------------------------------


def fetch(name: str, root: Path, project: str, entity: str | None = None) -> Run:
    """Download a run into `root`; TrackError if it is here or W&B does not have it."""
    if not name or name != Path(name).name or name.startswith("."):
        raise TrackError(f"{name!r} is not the id of a run")
    if is_run(root / name):
        raise TrackError(f"{root / name} exists already")
    wandb = wandb_module()
    path = "/".join(part for part in (entity, project, run_id(name)) if part)
    try:
        found = wandb.Api().run(path)
        artifacts = list(found.logged_artifacts())
    except (wandb.errors.CommError, wandb.errors.UsageError, ValueError) as error:
        raise TrackError(
            f"W&B has no run {path}, or you may not read it: {first_line(error)}"
        ) from None
    root.mkdir(parents=True, exist_ok=True)
    with temporary_folder("fetch", root) as temp:
        folder = Path(temp) / name
        _download(artifacts, name, folder)
        meta = read_json(folder / "meta.json", "The run was saved without it.")
        if meta.get("id") != name:
            raise TrackError(f"{path} holds the run {meta.get('id')!r}, not {name!r}")
        folder.rename(root / name)
    return Run(root / name)


def _download(artifacts: list[Any], name: str, folder: Path) -> None:
    """Only files that a run has are taken, whatever an artefact holds."""
    own = [a for a in artifacts if a.name.partition(":")[0] == artifact_name("run", name)]
    if not own:
        raise TrackError(f"{name} was not sent to W&B by gsolve track: it has no files there")
    downloaded = Path(own[-1].download(root=str(folder.parent / "files")))
    folder.mkdir()
    for wanted in RUN_FILES:
        if (downloaded / wanted).is_file():
            shutil.copyfile(downloaded / wanted, folder / wanted)
    if not (folder / "config.yaml").is_file():
        raise RunError(f"{name} has no config.yaml at W&B")
    for path in (folder / "checkpoints", folder / "videos"):
        path.mkdir()
    for path in (folder / "metrics.jsonl", folder / "events.jsonl", folder / "run.log"):
        path.touch()
    models = [a for a in artifacts if a.name.partition(":")[0] == artifact_name("checkpoint", name)]
    for artifact in models:
        env_steps = artifact.metadata.get("env_steps")
        if type(env_steps) is not int or env_steps < 0:
            continue
        target = folder / "checkpoints" / str(env_steps)
        if not target.exists():
            target.mkdir()
            place = str(folder.parent / f"checkpoint-{env_steps}")
            for path in sorted(Path(artifact.download(root=place)).iterdir()):
                if path.suffix in (".safetensors", ".json") or path.name == "done":
                    shutil.copyfile(path, target / path.name)
        for alias in (BEST, LAST):
            if alias in artifact.aliases:
                write_pointer(folder / "checkpoints" / alias, str(env_steps))


class TrackioSink(Sink):
    """Trackio keeps what it was given: rows are sent once, from the saved count on. After a rewind
    the run is written again under another name."""

    def open(self, subject: Subject, state: Mapping[str, Any], sent: Sent) -> Sent:
        try:
            trackio = importlib.import_module("trackio")
        except ImportError:
            raise TrackError(
                "Trackio is not installed. It needs another Pillow than this package is tested "
                "with: pip install trackio in an environment of its own, and gsolve track there."
            ) from None
        self._trackio, self._subject = trackio, subject
        self._part = int(state.get("part", 0))
        self._init()
        return sent

    def _init(self) -> None:
        run, config = self._subject.run, self._subject.config
        name = f"{run.id}-{self._part}" if self._part else run.id
        project = self._subject.options.project or project_of(config)
        self._run = self._trackio.init(
            project=project, name=name, group=group_of(run, config), config=dict(config),
            resume="allow",
        )  # fmt: skip

    def rewind(self, kept: Sent) -> Sent:
        self._trackio.finish()
        self._part += 1
        self._init()
        return Sent()

    def row(self, index: int, row: Mapping[str, Any]) -> None:
        self._trackio.log(numbers(row) | {"env_steps": row["env_steps"]}, step=row["env_steps"])

    def event(self, index: int, event: Mapping[str, Any]) -> None:
        for row in event_rows([event], self._subject.run.meta()):
            self._trackio.log(numbers(row), step=row["env_steps"])

    def commit(self) -> dict[str, Any]:
        return {"part": self._part}

    def close(self, summary: RunSummary) -> str:
        self._trackio.finish()
        return "trackio show"
