"""An experiment: several configs, several seeds each, in a small folder that names its runs.

    experiment = create([("CartPole-v1:ppo", config)], seeds=[1, 2, 3], root=runs_root())
    experiment.run(jobs=2)
    compare(experiment_groups(experiment))          # experiments/groups.py

The folder is `<runs>/experiments/<id>/`: `experiment.yaml` names the runs, `configs/` has the
resolved config of each group, so that a later edit of a file changes nothing. Runs are ordinary
folders in `<runs>/`. Running an experiment again does what is left to do. Light to import.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError, TrustError
from gymnasium_solver.experiments.pool import Backend, Pool, Task
from gymnasium_solver.paths import is_file, is_folder, user_path
from gymnasium_solver.runs.files import cannot_write, locked, write_atomic
from gymnasium_solver.runs.origin import is_made_here, signature
from gymnasium_solver.runs.run import utc_now
from gymnasium_solver.suggest import did_you_mean

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

FOLDER, FILE, CONFIGS, STACKS = "experiments", "experiment.yaml", "configs", "stacks"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}")
_FIX = "Restore it from a copy; the runs themselves are intact."


@dataclass(frozen=True)
class Member:
    """One run of an experiment."""

    run: str
    """Name of its folder in the folder of all runs."""
    group: str
    seed: int
    config: str
    """File in `configs/`."""


@dataclass(frozen=True)
class Experiment:
    path: Path
    created_at: str
    command: list[str]
    members: tuple[Member, ...]
    cpus: int | None = None
    """CPUs for the threads of each run, kept for a resume; None: an equal share."""
    note: str = ""
    signature: str | None = field(default=None, repr=False)
    stacks: int | None = None
    """Processes per config, each of which trains its share of the seeds; None: one per run."""

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def root(self) -> Path:
        """The folder of all runs."""
        return self.path.parent.parent

    def folder(self, member: Member) -> Path:
        return self.root / member.run

    def folders(self) -> list[Path]:
        return [self.folder(member) for member in self.members]

    def task(self, member: Member) -> Task:
        config = self.path / CONFIGS / member.config
        words = (str(config), "--seed", str(member.seed), "--runs-dir", str(self.root))
        return Task(self.folder(member), words, f"{member.group} seed {member.seed}")

    def pool(self, jobs: int, backend: Backend | None = None) -> Pool:
        """The tasks of this experiment, as far as they are known from their folders."""
        pool = Pool(jobs, cpus=self.cpus, backend=backend, retry_failed=True)
        for task in self.tasks() if self.stacks is None else self.stacked_tasks():
            pool.add(task)
        return pool

    def tasks(self) -> list[Task]:
        return [self.task(member) for member in self.members]

    def stacked_tasks(self) -> list[Task]:
        """One task per stack. Which runs are in it does not change, so that a resume finds it."""
        from gymnasium_solver.experiments.stack import as_stack

        found: list[Task] = []
        for config in dict.fromkeys(member.config for member in self.members):
            own = [member for member in self.members if member.config == config]
            n_stacks = min(self.stacks or 1, len(own))
            for i in range(n_stacks):
                part = own[i::n_stacks]
                folder = self.path / STACKS / f"{len(found):02d}"
                seeds = ", ".join(str(member.seed) for member in part)
                label = f"{part[0].group} seeds {seeds}"
                found.append(as_stack(folder, [self.task(m) for m in part], label))
        return found

    def run(
        self,
        jobs: int = 1,
        *,
        backend: Backend | None = None,
        on_change: Callable[[Task], None] | None = None,
        trust: bool = False,
    ) -> list[Task]:
        """Run or resume all runs and return the tasks. One process at a time may do this."""
        self.check_trust(trust)
        with locked(self.path):
            pool = self.pool(jobs, backend)
            pool.run(on_change=on_change)
        return pool.tasks

    def check_trust(self, trust: bool) -> None:
        """TrustError if the experiment was not made here and its configs name code to import."""
        code = self.code()
        if code and not trust and not is_made_here({"id": self.id, "signature": self.signature},
                                                   code):  # fmt: skip
            raise TrustError(
                f"{self.path} was not made here, and its configs name code to import: "
                f"{', '.join(code)}. Look at it first; then repeat the command with --trust."
            )

    def code(self) -> list[str]:
        files = dict.fromkeys(member.config for member in self.members)
        configs = [read_file(self.path / CONFIGS / name)[0] for name in files]
        return sorted({name for config in configs for name in code_named(config)})

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_at": self.created_at,
            "command": self.command,
            "note": self.note,
            "cpus": self.cpus,
            **({} if self.stacks is None else {"stacks": self.stacks}),
            "signature": self.signature,
            "runs": [vars(member) for member in self.members],
        }


def create(
    configs: Sequence[tuple[str, "Config"]],
    seeds: Sequence[int],
    root: Path,
    *,
    name: str | None = None,
    command: Sequence[str] = (),
    cpus: int | None = None,
    note: str = "",
    stacks: int | None = None,
) -> Experiment:
    """Write the folder of a new experiment. `configs`: a label and a resolved config per group.
    `stacks`: train the seeds of a config together, in this many processes."""
    from gymnasium_solver.config.load import config_dict, dump_config
    from gymnasium_solver.experiments.stack import check_stackable

    _check(configs, seeds)
    if stacks is not None:
        for label, config in configs:
            check_stackable(label, config)
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    identity = name or f"{_slug(configs[0][0])}{f'-and-{len(configs) - 1}' * (len(configs) > 1)}"
    if name is not None and not _NAME.fullmatch(name):
        raise RunError(
            f"{name!r} cannot name an experiment: expected up to 128 letters, digits and . _ + = -"
        )
    path = root / FOLDER / (name or f"{identity}-{stamp}")
    members, texts = [], {}
    for i, (label, config) in enumerate(configs):
        file = f"{i:02d}-{_slug(label)}.yaml"
        texts[file] = dump_config(config.replace(seed=None))
        stem = _slug(f"{config.env_id}-{_tail(label, config)}")[:80]
        for seed in seeds:
            run = (
                f"{stem}-{i:02d}-s{seed}-{stamp}" if len(configs) > 1 else f"{stem}-s{seed}-{stamp}"
            )
            members.append(Member(run, label, seed, file))
    code = sorted({n for _, config in configs for n in code_named(config_dict(config))})
    signed = signature(path.name, code)
    made = Experiment(path, utc_now(), list(command), tuple(members), cpus, note, signed, stacks)
    try:
        (path / CONFIGS).mkdir(parents=True)
        for file, text in texts.items():
            write_atomic(path / CONFIGS / file, text.encode())
        write_atomic(path / FILE, dump_yaml(made.to_dict()).encode())  # last: now it exists
    except FileExistsError:
        raise RunError(f"{path} exists already; choose another name") from None
    except OSError as error:
        raise cannot_write("the experiment", path, error) from error
    return made


def _check(configs: Sequence[tuple[str, "Config"]], seeds: Sequence[int]) -> None:
    if not configs or not seeds:
        raise ConfigError("an experiment needs at least one config and one seed")
    for names in ([label for label, _ in configs], [f"seed {seed}" for seed in seeds]):
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ConfigError(f"given twice: {', '.join(twice)}")


def _tail(label: str, config: "Config") -> str:
    head, colon, tail = label.partition(":")
    return tail if colon and head == config.env_id else label


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "experiment"


def load(path: Path) -> Experiment:
    """Read the folder of an experiment."""
    file = path / FILE
    if not is_file(file):
        raise RunError(f"{path} is not an experiment: it has no {FILE}")
    try:
        content, _ = read_file(file)
    except ConfigError as error:
        raise RunError(f"{file} cannot be read: {error}. {_FIX}") from None
    try:
        members = tuple(_member(row, file) for row in content["runs"])
        cpus, command = content.get("cpus"), content.get("command") or []
        stacks = content.get("stacks")
        return Experiment(
            path, str(content["created_at"]), [str(word) for word in command], members,
            cpus if isinstance(cpus, int) else None, str(content.get("note") or ""),
            content.get("signature"), stacks if isinstance(stacks, int) else None,
        )  # fmt: skip
    except (TypeError, KeyError, AttributeError):
        raise RunError(f"{file} lacks fields of an experiment. {_FIX}") from None


def _member(row: Mapping[str, Any], file: Path) -> Member:
    member = Member(str(row["run"]), str(row["group"]), int(row["seed"]), str(row["config"]))
    for name in (member.run, member.config):
        if name != Path(name).name or name.startswith("."):  # from a stranger's file
            raise RunError(f"{file}: {name!r} is not the name of a file here. {_FIX}")
    return member


def experiment_ids(root: Path) -> list[str]:
    """Ids of the experiments, newest first."""
    folder = root / FOLDER
    if not is_folder(folder):
        return []
    found = [path for path in folder.iterdir() if is_file(path / FILE)]
    return [path.name for path in sorted(found, key=_created, reverse=True)]


def _created(path: Path) -> tuple[float, str]:
    return ((path / FILE).stat().st_mtime, path.name)  # experiment.yaml is written once


def find(ref: str, root: Path) -> Path | None:
    """The folder of the experiment that `ref` names: an id, a unique part of one, a path."""
    for path in (user_path(ref), root / FOLDER / ref, root / ref):
        if ref and is_file(path / FILE):
            return path
    if "/" in ref or not ref:
        return None
    matches = [name for name in experiment_ids(root) if ref.lower() in name.lower()]
    return root / FOLDER / matches[0] if len(matches) == 1 else None


def open_experiment(ref: str, root: Path) -> Experiment:
    """The experiment that `ref` names; `@last` is the newest."""
    ids = experiment_ids(root)
    if ref == "@last" and ids:
        return load(root / FOLDER / ids[0])
    path = find(ref, root)
    if path is not None:
        return load(path)
    matches = [name for name in ids if ref.lower() in name.lower()]
    if len(matches) > 1:
        raise RunError(f"{ref!r} matches several experiments: {', '.join(matches[:10])}")
    known = f"Experiments: {', '.join(ids[:10])}." if ids else "There are none yet."
    raise RunError(f"there is no experiment {ref!r} in {root}. {did_you_mean(ref, ids) or known}")
