"""Finds configs: the shipped ones and the user's own.

A config's name is `<env>:<variant>`. The user's files are searched in the folders of the
environment variable GSOLVE_CONFIGS and in ./configs, and override shipped ones of the same name.
Nothing heavy is imported, so that listing is fast.
"""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gymnasium_solver.config.env_ids import file_stem, split_target
from gymnasium_solver.config.foreign import OLD_CONFIGS
from gymnasium_solver.config.learner_blocks import ActorCriticFields, MinibatchFields
from gymnasium_solver.config.schema import LearnerConfig, canonical, layered
from gymnasium_solver.config.yaml_file import parse_yaml, read_text, unfilled
from gymnasium_solver.errors import ConfigError, told_as
from gymnasium_solver.paths import is_file
from gymnasium_solver.registry import algorithms
from gymnasium_solver.suggest import nearest

SUFFIXES = (".yaml", ".yml", ".json")
# What most configs write; a block that holds one of them is a variant.
COMMON = {
    name
    for block in (LearnerConfig, MinibatchFields, ActorCriticFields)
    for name in block.model_fields
}
DEFAULT_ALGO = "ppo"  # where neither an algorithm nor a variant is named
SHIPPED = Path(__file__).parent.parent / "configs"
# The order of listings: what is quick to try first. Folders not named here stand before the last.
SUITES = (
    "", "classic_control", "toy_text", "box2d", "mujoco", "dm_control", "robotics", "bandit",
    "memory", "c", "minigrid", "procgen", "atari", "vizdoom", "retro",
)  # fmt: skip
LAST_SUITE = "ablations"


@dataclass(frozen=True)
class ConfigFile:
    """A parsed config file: the lines that all variants share, and each variant's own.

    Shared by all who read the same text; `section` returns a copy that may be changed."""

    path: Path
    base: dict[str, Any]
    variants: dict[str, dict[str, Any]]
    placeholders: frozenset[str]

    def section(self, variant: str | None) -> dict[str, Any]:
        """All lines of a variant, or of a file without variants."""
        own = self.variants[variant] if variant is not None else {}
        merged = deepcopy(layered(self.base, own))
        if merged.get("project_id") is None:
            merged["project_id"] = self.path.stem
        if variant is not None:
            merged["variant"] = variant
            if merged.get("algo_id") is None and algo_in_name(variant):
                merged["algo_id"] = algo_in_name(variant)
        return merged


@dataclass(frozen=True)
class ConfigEntry:
    """A config that can be named on the command line."""

    name: str
    env_id: str
    variant: str
    algo_id: str
    description: str
    path: Path
    suite: str


def algo_in_name(variant: str) -> str | None:
    """The algorithm a variant is named after: ppo, ppo_tuned and rgb_ppo are all ppo."""
    padded = f"_{variant}_"
    found = [name for name in algorithms.names() if f"_{name}_" in padded]
    return min(found, key=lambda name: (padded.index(f"_{name}_"), -len(name)), default=None)


def read_config_file(path: Path, fill: Mapping[str, str] | None = None) -> ConfigFile:
    """Read a file and separate its variants from the fields they share."""
    text, placeholders = read_text(path, fill)
    return _read(path, text, frozenset(placeholders), tuple(algorithms.names()))


@lru_cache(maxsize=512)
def _read(
    path: Path, text: str, placeholders: frozenset[str], algos: tuple[str, ...]
) -> ConfigFile:
    """Cached, since loading one config asks for its file several times. `algos` decides what is a
    variant, and plugins add to it."""
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        given = "but it is empty" if content is None else f"not {content!r}"
        raise ConfigError(f"{path}: expected a block of `field: value` lines, {given}")
    base, variants, shared = {}, {}, {}
    is_flat = {"algo_id", "variant"} <= content.keys()  # as a run's config.yaml: all are fields
    for key, value in content.items():
        if key == "_base":
            shared = _section(path, "_base", value)
        elif str(key).startswith("_"):
            continue  # a template for `<<`
        elif not is_flat and _is_variant(key, value):
            variants[key] = _section(path, key, value)
        else:
            base[str(key)] = value
    base = layered(shared, _section(path, "the top of the file", base))
    return ConfigFile(path, base, variants, placeholders)


def _section(path: Path, name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {name} must be a block of `field: value` lines, not {value!r}")
    with told_as(ConfigError, f"{path}: in {name}", ConfigError):
        return canonical({str(key): item for key, item in value.items()})


def _is_variant(key: Any, value: Any) -> bool:
    """Is this block a variant: named after an algorithm, or holding fields of a config?"""
    if not isinstance(key, str) or key in COMMON:
        return False
    # A field of a plugin's algorithm; its name may begin with that of another algorithm.
    if any(key in algo.Config.model_fields for algo in algorithms.items.values()):
        return False
    if key in algorithms.names():
        return True
    if algo_in_name(key):
        return value is None or isinstance(value, dict)  # else a field, such as sac_scale: 3
    if not isinstance(value, dict):
        return False
    if "algo_id" in value:
        return True
    # `env_kwarg:` is a misspelled field, not a variant of that name.
    return any(name in COMMON for name in value) and not nearest(key, COMMON, n=1, cutoff=0.8)


def find_configs(pattern: str | None = None) -> list[ConfigEntry]:
    """All configs, or those whose name, suite or description has `pattern` (* and ? work)."""
    entries: dict[str, ConfigEntry] = {}
    for root in config_folders():
        for path in config_files(root):
            for entry in _entries(path, root):
                entries.setdefault(entry.name, entry)
    # The first variant of a file is the one to start with, so the order in files is kept.
    found = sorted(entries.values(), key=_listing_key)
    return [entry for entry in found if pattern is None or _matches(entry, pattern)]


def _listing_key(entry: ConfigEntry) -> tuple[int, str, str]:
    place = SUITES.index(entry.suite) if entry.suite in SUITES else len(SUITES)
    last = len(SUITES) + 1 if entry.suite == LAST_SUITE else place
    return last, entry.suite, entry.name.rpartition(":")[0]


def config_folders() -> list[Path]:
    """Folders searched for configs. The first one that has a name is used."""
    own = [Path(part) for part in os.environ.get("GSOLVE_CONFIGS", "").split(os.pathsep) if part]
    return [*own, Path("configs"), SHIPPED]


def config_files(root: Path) -> Iterator[Path]:
    """The config files under a folder, in a fixed order."""
    try:
        paths = sorted(root.rglob("*"))
    except OSError:  # not a folder that can be read
        return
    for path in paths:
        # Names that begin with _ are not configs: _overlays.yaml (load.py).
        if path.suffix in SUFFIXES and not path.name.startswith("_") and is_file(path):
            yield path


def files_named(name: str, folders: Iterable[Path] | None = None) -> Iterator[Path]:
    """The config files with the name of an environment, first those of the folder that counts."""
    for root in config_folders() if folders is None else folders:
        yield from (path for path in config_files(root) if path.stem == file_stem(name))


def _entries(path: Path, root: Path) -> Iterator[ConfigEntry]:
    try:
        file = read_config_file(path)
    except ConfigError:
        return  # ./configs may hold files of other programs; loading one by name reports the error
    sections = {name: file.section(name) for name in file.variants}
    if not sections and "algo_id" in file.base:
        section = file.section(None)
        sections = {str(section.get("variant") or section["algo_id"]): section}
    for variant, section in sections.items():
        env_id, algo_id = section.get("env_id"), section.get("algo_id")
        if not isinstance(env_id, str) or not isinstance(algo_id, str):
            continue
        # ALE/Pong-v5 is in ALE-Pong-v5.yaml; a generic file (env_id: ${env}) has its own name.
        generic = any(unfilled(env_id)) or path.stem != file_stem(env_id)
        name = f"{path.stem if generic else env_id}:{variant}"
        description = " ".join(str(section.get("description") or "").split())
        suite = path.parent.relative_to(root).as_posix().replace(".", "")
        yield ConfigEntry(name, env_id, variant, algo_id, description, path, suite)


def _matches(entry: ConfigEntry, pattern: str) -> bool:
    text = f"{entry.name} {entry.suite} {entry.description}".lower()
    wanted = pattern.lower()
    if any(sign in wanted for sign in "*?["):
        return fnmatch.fnmatch(entry.name.lower(), wanted)
    return all(word in text for word in wanted.split())


def own_file(target: str) -> Path | None:
    """The user's own file of a name or path, with or without a variant."""
    for name in dict.fromkeys((target, split_target(target)[0])):
        if Path(name).suffix in SUFFIXES and is_file(Path(name)):
            return Path(name)
        if (found := next(files_named(name, config_folders()[:-1]), None)) is not None:
            return found
    return None


def locate(
    target: str, variant: str | None = None, default: str | None = None
) -> tuple[Path, str | None]:
    """The file and variant of a config's name or path. `default`: the variant of a name that is
    given without one."""
    if variant is None and Path(target).suffix not in SUFFIXES:
        target, variant = split_target(target)
    if Path(target).suffix in SUFFIXES:
        if not is_file(Path(target)):
            raise ConfigError(f"there is no config file {_cut(target)}")
        return Path(target), variant
    wanted = default if variant is None else variant
    # The file of that name first: reading all files is slow. ALE-Pong-v5:ppo is ALE/Pong-v5:ppo.
    named = (entry for path in files_named(target) for entry in _entries(path, path.parent))
    found = [entry for entry in named if entry.variant == wanted][:1]
    if not found:
        entries = find_configs()
        found = [entry for entry in entries if entry.name == f"{target}:{wanted}"]
        found = found or [e for e in entries if (e.env_id, e.variant) == (target, wanted)]
        own = [entry for entry in entries if entry.name.rpartition(":")[0] == target]
        if not found and variant is None and default is not None and len(own) == 1:
            found = own
    if not found:
        raise ConfigError(_not_found(target, variant, entries))
    path, own_variant = found[0].path, found[0].variant
    return path, own_variant if own_variant in read_config_file(path).variants else None


def _not_found(target: str, variant: str | None, entries: list[ConfigEntry]) -> str:
    for path in files_named(target):
        read_config_file(path)  # if it cannot be read, report that error
    name = f"{target.replace('/', '-')}:{variant}"
    if name in OLD_CONFIGS:
        return f"{target}:{variant} is another config here: gsolve train {OLD_CONFIGS[name]}"
    own = [e.name for e in entries if e.name.rpartition(":")[0] == target]
    own = own or [e.name for e in entries if e.env_id == target]
    if own and variant is None:
        return f"{target} needs a variant: {', '.join(own)}"
    if own:
        return f"{target} has no variant {_cut(variant or '')!r}; it has: {', '.join(own)}"
    wanted = _cut(f"{target}:{variant}" if variant else target)
    names = [entry.name for entry in entries]
    within = [name for name in names if target and target.lower() in name.lower()]
    within.sort(key=lambda name: len(name.rpartition(":")[0]))  # the env's own file first
    stems = {name.rpartition(":")[0]: name for name in reversed(names)}
    close = [stems[stem] for stem in nearest(target, stems, n=5, cutoff=0.5)]
    words = _words(wanted)  # ppo_cartpole is CartPole-v1:ppo
    same = [name for name in names if words and words <= _words(name)]
    found = dict.fromkeys([*same, *within, *close, *nearest(wanted, names, n=5, cutoff=0.6)])
    listing = f"the nearest are: {', '.join([*found][:6])}" if found else "gsolve list shows all"
    return f"there is no config named {wanted!r}; {listing}"


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+|\d+", name.lower()))


def _cut(name: str) -> str:
    """A name as given, cut to a length that fits a message."""
    return name if len(name) <= 100 else name[:97] + "..."
