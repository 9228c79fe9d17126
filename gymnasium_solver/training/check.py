"""Finds everything that is wrong with config files: `gsolve check`.

    for problem in check_file(Path("configs/My.yaml")).problems:
        print(problem)                 # configs/My.yaml:7: ppo: polcy_lr: unknown field. ...

Loading a config stops at the first kind of problem; here all of them are collected, for every
variant. A problem in lines that several variants share is named once.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.algos import algo_ids
from gymnasium_solver.config.find import ConfigFile, read_config_file
from gymnasium_solver.config.schema import Config, canonical
from gymnasium_solver.config.yaml_file import read_text, unfilled
from gymnasium_solver.config.yaml_lines import FieldLines, field_lines
from gymnasium_solver.config.yaml_lines import Path as FieldPath
from gymnasium_solver.envs.make import check_env_id
from gymnasium_solver.envs.suites.game_options import fill_defaults
from gymnasium_solver.errors import ConfigError, EnvError, GsolveError, MissingError, TrustError
from gymnasium_solver.plugins import import_plugins, observer_class
from gymnasium_solver.registry import config_class
from gymnasium_solver.training.trust import check_trust

Found = tuple[FieldPath, str]
"""A place in a config, and what is wrong there."""


@dataclass(frozen=True)
class Problem:
    path: str
    line: int | None
    variants: tuple[str, ...]
    """The configs of the file that have it; empty: the file itself."""
    text: str

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        who = f"{', '.join(self.variants)}: " if self.variants else ""
        return f"{self.path}{line}: {who}{self.text}"


@dataclass
class FileReport:
    path: Path
    configs: int = 0
    problems: list[Problem] = field(default_factory=list)


def check_file(path: Path) -> FileReport:
    """Check all configs of a file."""
    report = FileReport(path)
    try:
        file = read_config_file(path)
        lines = field_lines(read_text(path)[0])
        check_trust(path, [file.base, *file.variants.values()])
    except (ConfigError, TrustError) as error:
        report.problems.append(_file_problem(path, str(error)))
        return report
    if not file.variants and not file.base:
        report.problems.append(Problem(str(path), None, (), "the file is empty"))
        return report
    names: list[str | None] = list(file.variants) or [None]
    report.configs = len(names)
    grouped: dict[tuple[int | None, str], list[str]] = {}
    for name in names:
        for line, text in _variant_problems(file, name, lines):
            grouped.setdefault((line, text), []).extend([name] if name else [])
    report.problems = [
        Problem(str(path), line, () if len(who) == len(names) > 1 else tuple(who), text)
        for (line, text), who in sorted(grouped.items(), key=lambda item: item[0][0] or 0)
    ]
    return report


def _file_problem(path: Path, text: str) -> Problem:
    """A problem of the file itself; the YAML reader puts the line into its message."""
    match = re.match(rf"{re.escape(str(path))}(?::(\d+))?: (.*)", text, re.DOTALL)
    if match is None:
        return Problem(str(path), None, (), text)
    return Problem(str(path), int(match[1]) if match[1] else None, (), match[2])


def _variant_problems(
    file: ConfigFile, name: str | None, lines: FieldLines
) -> Iterator[tuple[int | None, str]]:
    section = file.section(name)
    for place, text in section_problems(section):
        line = lines.find(name, place)
        if line is None and name is not None:
            line = lines.variant(name)
        yield line, text


def section_problems(section: Mapping[str, Any]) -> Iterator[Found]:
    """What is wrong with the lines of one config. Fields with unfilled placeholders are left
    out."""
    try:
        data = canonical(section)
    except ConfigError as error:
        yield (), str(error)
        return
    open_fields = {key for key, value in data.items() if any(unfilled(value))}
    yield from _plugin_problems(data.get("plugins"))
    algo_id = data.get("algo_id")
    if "algo_id" not in open_fields:
        try:
            model: type[Config] = config_class(_text(algo_id))
        except ConfigError as error:
            yield ("algo_id",), str(error)
        else:
            found = _field_problems(model, data)
            yield from (item for item in found if not {*item[0][:1]} & open_fields)
    if "env_wrappers" not in open_fields:
        yield from _wrapper_problems(data.get("env_wrappers"))
    for i, observer in enumerate(_names(data.get("observers"))):
        try:
            observer_class(observer)
        except ConfigError as error:
            yield ("observers", i), str(error)
    if "env_id" not in open_fields and isinstance(data.get("env_id"), str):
        try:
            check_env_id(data["env_id"])
        except MissingError:
            pass  # of this machine, not of the file
        except EnvError as error:
            yield ("env_id",), f"env_id: {error}"


def _text(algo_id: Any) -> str:
    if isinstance(algo_id, str):
        return algo_id
    given = "not given" if algo_id is None else f"got {algo_id!r}"
    raise ConfigError(f"algo_id: {given}, expected one of {', '.join(algo_ids())}")


def _names(value: Any) -> list[str]:
    items = [value] if isinstance(value, str) else value
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def _plugin_problems(value: Any) -> Iterator[Found]:
    for i, name in enumerate(_names(value)):
        try:
            import_plugins([name])
        except ConfigError as error:
            yield ("plugins", i), str(error)


def _field_problems(model: type[Config], data: dict[str, Any]) -> Iterator[Found]:
    """Problems of the fields. Those of single fields hide the ones between fields, so the checks
    are repeated without the fields that are wrong by themselves."""
    seen: set[str] = set()
    while True:
        try:
            model(**fill_defaults(data))
            return
        except GsolveError as error:
            text = str(error)
        new = [line for line in text.splitlines() if line not in seen]
        wrong = set()
        for line in new:
            seen.add(line)
            name = re.split(r"[:. ]", line, maxsplit=1)[0]
            wrong |= {name} & data.keys()
            yield _place(line), line
        if not wrong:
            return
        data = {key: value for key, value in data.items() if key not in wrong}


def _place(line: str) -> FieldPath:
    """The place that a message begins with: `spec.action_space.labels: ...`."""
    match = re.match(r"[\w.]+(?=:| )", line)
    return tuple(match[0].split(".")) if match else ()


def _wrapper_problems(specs: Any) -> Iterator[Found]:
    given = specs if isinstance(specs, list) else []
    if not given:
        return
    from gymnasium_solver.envs.wrappers.wrapping import lower, wrapper_problems

    problems = 0
    for i, spec in enumerate(given):
        if isinstance(spec, Mapping):
            for option, text in wrapper_problems(spec):
                problems += 1
                yield ("env_wrappers", i, option), f"env_wrappers: {text}"
    if not problems and all(isinstance(spec, Mapping) for spec in given):
        try:
            lower(given)  # their order
        except EnvError as error:
            yield ("env_wrappers",), f"env_wrappers: {error}"
