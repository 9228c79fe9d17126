"""An experiment: several configs, several seeds each, in a small folder that names its runs.

    experiment = create([("CartPole-v1:ppo", config)], seeds=[1, 2, 3], root=runs_root())
    experiment.run(jobs=2)

The folder is `<runs>/experiments/<id>/`: `experiment.yaml` names the runs, which are ordinary
folders in `<runs>/`; `configs/` has the resolved config of each group, so that a later edit of a
file changes nothing. Running an experiment again does what is left to do. Light to import.

With `stacks`, seeds of one config train together in one process (cli/stack_worker.py). The folder
of a stack is `<experiment>/stacks/00/`: `lanes.json`, the command line of each run, and the files
of its process. Each run can be resumed alone.
"""

import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gymnasium_solver.backends.local import LANES
from gymnasium_solver.config.code import code_named, untrusted
from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.experiments.pool import Backend, Pool, Task
from gymnasium_solver.paths import is_file, is_folder, user_path
from gymnasium_solver.runs.files import dump_json, locked, read_json, write_atomic, writing
from gymnasium_solver.runs.machine import is_made_here, signature
from gymnasium_solver.runs.query import RunSummary, get_run
from gymnasium_solver.runs.resolve import meant
from gymnasium_solver.runs.run import Run, is_run, utc_now

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

FOLDER, FILE, CONFIGS, STACKS = "experiments", "experiment.yaml", "configs", "stacks"
OVER = ("finished", "failed", "broken")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,127}")
_FIX = "Restore it from a copy; the runs themselves are intact."
ALGORITHMS = ("ppo", "a2c", "reinforce", "dqn")
# What the process of a stack imports (backends/nursery.py).
IMPORTS = (
    "gymnasium_solver.training.loop",
    "gymnasium_solver.cli.train",
    "gymnasium_solver.envs.engines.c.classics",
    "gymnasium_solver.envs.engines.gymnasium",
    *(f"gymnasium_solver.algos.{name}" for name in ALGORITHMS),
)
# Fields that a stack does not support, with what they mean.
REFUSED = {
    "recurrent": "a recurrent network",
    "intrinsic": "an intrinsic reward",
    "sil": "self-imitation",
    "her": "hindsight replay",
    "eval_async": "a process of its own for evaluations",
    "collectors": "processes that act for one learner",
    "profile": "a profile of one run",
}

FEWEST_SEEDS = 4  # of a stack: fewer are not worth the start of another process
# On a GPU small networks wait for Python, so that smaller stacks pay; but each process takes half a
# gigabyte of the GPU's memory.
FEWEST_ON_GPU, MOST_STACKS_ON_GPU = 2, 5
CNN = "it learns from images, by a CNN that one seed alone keeps busy"


@dataclass(frozen=True)
class Member:
    """One run of an experiment."""

    run: str  # name of its folder in the folder of all runs
    group: str
    seed: int
    config: str  # file in `configs/`


class Line(NamedTuple):
    """One run of a stack: its folder, and the words after `gsolve train`."""

    run: Path
    words: tuple[str, ...]


@dataclass
class Stack(Task):
    """Several trainings in one process, as a task of the pool. `folder` is the stack's own."""

    lanes: tuple[Line, ...] = ()

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", "gymnasium_solver.cli.stack_worker", str(self.folder)]

    @property
    def runs(self) -> list[Path]:
        return [lane.run for lane in self.lanes]


@dataclass(frozen=True)
class Experiment:
    path: Path
    created_at: str
    command: list[str]
    members: tuple[Member, ...]
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

    def config_files(self) -> list[Path]:
        """The config of each group."""
        names = dict.fromkeys(member.config for member in self.members)
        return [self.path / CONFIGS / name for name in names]

    def task(self, member: Member) -> Task:
        config = self.path / CONFIGS / member.config
        words = (str(config), "--seed", str(member.seed), "--runs-dir", str(self.root))
        return Task(self.folder(member), words, f"{member.group} seed {member.seed}")

    def pool(self, jobs: int, backend: Backend | None = None) -> Pool:
        """The tasks of this experiment, as far as they are known from their folders."""
        pool = Pool(jobs, backend=backend, retry_failed=True)
        each = [self.task(m) for m in self.members] if self.stacks is None else self.stacked_tasks()
        for task in each:
            pool.add(task)
        return pool

    def stacked_tasks(self) -> list[Task]:
        """One task per stack. Which runs are in it does not change, so that a resume finds it."""
        found: list[Task] = []
        for config in dict.fromkeys(member.config for member in self.members):
            own = [member for member in self.members if member.config == config]
            n_stacks = min(self.stacks or 1, len(own))
            for i in range(n_stacks):
                tasks = [self.task(member) for member in own[i::n_stacks]]
                lanes = tuple(Line(task.folder, (*task.words, *task.place)) for task in tasks)
                folder = self.path / STACKS / f"{len(found):02d}"
                folder.mkdir(parents=True, exist_ok=True)
                content = [{"run": str(lane.run), "words": list(lane.words)} for lane in lanes]
                write_atomic(folder / LANES, dump_json({"lanes": content}))
                seeds = ", ".join(str(member.seed) for member in own[i::n_stacks])
                found.append(Stack(folder, (), f"{own[0].group} seeds {seeds}", lanes=lanes))
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

    def check_trust(self, trust: bool, *more: Mapping[str, Any]) -> None:
        """TrustError if the experiment was not made here and its configs name code to import.
        `more`: fields that configs will be made of."""
        configs = [*(read_file(path)[0] for path in self.config_files()), *more]
        code = _code_of(configs)
        made_by = {"id": self.id, "signature": self.signature}
        if code and not trust and not is_made_here(made_by, code):
            raise untrusted(str(self.path), code, "its configs name")


def create(
    configs: Sequence[tuple[str, "Config"]],
    seeds: Sequence[int],
    root: Path,
    *,
    name: str | None = None,
    command: Sequence[str] = (),
    stacks: int | None = None,
) -> Experiment:
    """Write the folder of a new experiment. `configs`: a label and a resolved config per group.
    `stacks`: train the seeds of a config together, in this many processes."""
    from gymnasium_solver.config.load import config_dict, dump_config

    if not configs or not seeds:
        raise ConfigError("an experiment needs at least one config and one seed")
    for names in ([label for label, _ in configs], [f"seed {seed}" for seed in seeds]):
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ConfigError(f"given twice: {', '.join(twice)}")
    for label, config in configs if stacks is not None else ():
        check_stackable(label, config)
    if name is not None and not _NAME.fullmatch(name):
        raise RunError(
            f"{name!r} cannot name an experiment: expected up to 128 letters, digits and . _ + = -"
        )
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    others = f"-and-{len(configs) - 1}" * (len(configs) > 1)
    path = root / FOLDER / (name or f"{slug(configs[0][0])}{others}-{stamp}")
    members, texts = [], {}
    for i, (label, config) in enumerate(configs):
        file = f"{i:02d}-{slug(label)}.yaml"
        texts[file] = dump_config(config.replace(seed=None))
        stem = slug(f"{config.env_id}-{label.removeprefix(f'{config.env_id}:')}")[:80]
        place = f"-{i:02d}" * (len(configs) > 1)
        members += [Member(f"{stem}{place}-s{s}-{stamp}", label, s, file) for s in seeds]
    signed = signature(path.name, _code_of(config_dict(config) for _, config in configs))
    made = Experiment(path, utc_now(), list(command), tuple(members), signed, stacks)
    with writing("the experiment", path):
        try:
            (path / CONFIGS).mkdir(parents=True)
        except FileExistsError:
            raise RunError(f"{path} exists already; choose another name") from None
        for file, text in texts.items():
            write_atomic(path / CONFIGS / file, text.encode())
        write_atomic(path / FILE, _text_of(made))  # last: now it exists
    return made


def extend(made: Experiment, label: str, config: "Config", seed: int) -> Experiment:
    """Add one more run with a config of its own."""
    from gymnasium_solver.config.load import config_dict, dump_config

    number = len(made.config_files())
    file = f"{number:02d}-{slug(label)}.yaml"
    stem = slug(f"{config.env_id}-{label}")[:80]
    run = f"{stem}-{number:02d}-s{seed}-{made.members[0].run.rpartition('-s')[2].partition('-')[2]}"
    write_atomic(made.path / CONFIGS / file, dump_config(config.replace(seed=None)).encode())
    configs = [*(read_file(path)[0] for path in made.config_files()), config_dict(config)]
    members = (*made.members, Member(run, label, seed, file))
    signed = signature(made.id, _code_of(configs))
    extended = replace(made, members=members, signature=signed)
    write_atomic(made.path / FILE, _text_of(extended))
    return extended


def _code_of(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({name for config in configs for name in code_named(config)})


def _text_of(made: Experiment) -> bytes:
    content = {
        "id": made.id,
        "created_at": made.created_at,
        "command": made.command,
        **({} if made.stacks is None else {"stacks": made.stacks}),
        "signature": made.signature,
        "runs": [vars(member) for member in made.members],
    }
    return dump_yaml(content).encode()


def slug(text: str, otherwise: str = "experiment") -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or otherwise


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
        command, stacks = content.get("command") or [], content.get("stacks")
        return Experiment(
            path, str(content["created_at"]), [str(word) for word in command], members,
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
    return newest_first(root / FOLDER, FILE)


def newest_first(root: Path, *files: str) -> list[str]:
    """Names of the folders in `root` that have these files, the last of which is written once."""
    paths = root.iterdir() if is_folder(root) else ()
    found = [p for p in paths if p.name[0] not in "@." and all(is_file(p / f) for f in files)]
    found.sort(key=lambda path: ((path / files[-1]).stat().st_mtime_ns, path.name), reverse=True)
    return [path.name for path in found]


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
    path = root / FOLDER / ids[0] if ref == "@last" and ids else find(ref, root)
    return load(path or root / FOLDER / meant(ref, ids, "experiment", root))


# -- how far it is --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One run of an experiment, also before it exists."""

    member: Member
    run: RunSummary | None

    @property
    def status(self) -> str:
        return "waiting" if self.run is None else self.run.status

    @property
    def progress(self) -> float | None:
        """Share of the budget, in [0, 1]; a finished run is complete."""
        if self.run is None:
            return 0.0
        if self.status == "finished":
            return 1.0
        total = self.run.max_env_steps
        return min(1.0, self.run.env_steps / total) if total else None

    def to_dict(self) -> dict[str, Any]:
        found = {"env_steps": 0, "wall_s": 0.0, "best": None, "test": None, "solved": None}
        if self.run is not None:
            found = {name: getattr(self.run, name) for name in found}
        return {**vars(self.member), "status": self.status, "progress": self.progress, **found}


class Progress:
    """The runs of an experiment as they are now; what is over is read once."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._over: dict[str, RunSummary] = {}

    def rows(self) -> list[Row]:
        return [Row(member, self._summary(member)) for member in self.experiment.members]

    def _summary(self, member: Member) -> RunSummary | None:
        if member.run in self._over:
            return self._over[member.run]
        folder = self.experiment.folder(member)
        try:
            found = get_run(Run(folder)) if is_run(folder) else None
        except RunError:  # being written anew, or damaged: the run itself reports it
            return None
        if found is not None and found.status in OVER:
            self._over[member.run] = found
        return found


def status_of(rows: Sequence[Row]) -> str:
    """One word about an experiment: running, finished, failed or incomplete."""
    states = {row.status for row in rows}
    if "running" in states or "created" in states:
        return "running"
    if states == {"finished"}:
        return "finished"
    return "failed" if states <= set(OVER) else "incomplete"


def counts(rows: Sequence[Row]) -> str:
    """Such as "3 of 10 finished, 2 running"."""
    states = [row.status for row in rows]
    text = f"{states.count('finished')} of {len(rows)} finished"
    for word in ("running", "failed", "killed", "interrupted"):
        text += f", {states.count(word)} {word}" * (word in states)
    return text


def facts(experiment: Experiment, rows: Sequence[Row]) -> dict[str, Any]:
    """What a listing tells of an experiment."""
    return {
        "id": experiment.id,
        "path": str(experiment.path),
        "created_at": experiment.created_at,
        "status": status_of(rows),
        "groups": list(dict.fromkeys(row.member.group for row in rows)),
        "n_runs": len(rows),
        "n_finished": sum(row.status == "finished" for row in rows),
        "n_solved": sum(bool(row.run and row.run.solved) for row in rows),
        "progress": sum(row.progress or 0.0 for row in rows) / max(len(rows), 1),
        "command": experiment.command,
    }


# -- stacks ----------------------------------------------------------------------------------------


def read_lanes(folder: Path) -> list[Line]:
    content: dict[str, Any] = read_json(folder / LANES, "Delete the folder; the runs are intact.")
    return [Line(Path(row["run"]), tuple(row["words"])) for row in content["lanes"]]


def default_stacks(configs: Sequence[Any], n_seeds: int) -> int:
    """Processes per config: one per CPU, as long as each has a few seeds, and on a GPU a few."""
    most, fewest = cpu_count(), FEWEST_SEEDS
    if any(str(config.device).startswith("cuda") for config in configs):
        most, fewest = min(most, MOST_STACKS_ON_GPU), FEWEST_ON_GPU
    return max(1, min(most, n_seeds // fewest))


def check_stackable(label: str, config: Any) -> None:
    """ConfigError if the seeds of a config cannot be trained as a stack."""
    problems = [f"{name}: {what}" for name, what in REFUSED.items() if getattr(config, name, None)]
    if config.algo_id not in ALGORITHMS:
        problems.insert(0, f"algo_id {config.algo_id}; {', '.join(ALGORITHMS)} can be stacked")
    # With `policy: auto` the observations decide, which are known to the process of the stack.
    if "cnn" in (config.policy, str(config.model_id).partition("_")[0]):
        problems.append(CNN)
    if problems:
        raise not_stackable(label, problems[0])


def not_stackable(label: str, problem: str) -> ConfigError:
    return ConfigError(
        f"--stack: {label} cannot be stacked: {problem}. Use --jobs N, which trains each seed in a "
        "process of its own."
    )
