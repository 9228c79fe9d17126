"""Flags: a strict `Parser` for most verbs, and `parse_fields` for `train` and `show`, where any
config field is a flag.

A field flag means what the same line in the YAML means: `--policy-lr 1e-3` is `policy_lr: 1e-3`,
`--hidden-dims 64 64` is `hidden_dims: [64, 64]`, a bare `--normalize-obs` is `normalize_obs: true`
and `--no-normalize-obs` is `normalize_obs: false`. Kebab and snake spellings are the same flag.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.suggest import ask, nearest

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

# How many values a verb's own flag takes. A field's flag takes all words up to the next flag.
NONE, ONE, OPTIONAL, MANY = "none", "one", "optional", "many"
SHORT = {"-h": "help", "-q": "quiet", "-s": "set"}
_VALUE = re.compile(r"-(\d|\.\d|\.?inf)")  # -200, -.5 and -inf are values, -q is a flag
_SURE_TARGET = re.compile(r".+\.(ya?ml|json)(:\w+)?|[\w./-]+-v\d+(:\w+)?")  # a file, or Env-v1:name
_BAD_NUMBER = re.compile(r"argument (\S+): invalid (int|float) value: '(.*)'")
_BAD_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)")
_TARGET = re.compile(r"[\w./-]+:[A-Za-z_]\w*")  # also mc:rtg, which is a value


class UsageError(GsolveError):
    """The command line itself is wrong."""


class Parser(argparse.ArgumentParser):
    """argparse with whole flags only, kebab or snake, and a did-you-mean for unknown ones."""

    def __init__(self, verb: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=f"gsolve {verb}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_runs_dir(self) -> None:
        self.add_argument(
            "--runs-dir", metavar="DIR", help="folder of the runs (default: $GSOLVE_RUNS or ./runs)"
        )

    def add_trust(self) -> None:
        self.add_argument(
            "--trust",
            action="store_true",
            help="import the code that the config of a run made elsewhere names",
        )

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="print JSON, for programs")

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        if options.get("nargs") == "*" and not names[0].startswith("-"):
            options.setdefault("default", [])  # otherwise argparse calls it required
        return super().add_argument(*names, **options)

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        words = [_kebab_token(token) for token in argv]
        args, extra = self.parse_known_args(words)
        if extra and not any(word.startswith("-") for word in extra):
            # Words after a flag, which argparse takes only in this mode: set RUN --at 5 FIELD=VALUE
            args, extra = self.parse_known_intermixed_args(words)
        if extra:
            flags = [name for action in self._actions for name in action.option_strings]
            wrong = next((word for word in extra if word.startswith("-")), extra[0])
            raise UsageError(unknown_flag(wrong.partition("=")[0], flags, self.prog))
        return args

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_plain(message)}. See {self.prog} --help")


def _plain(message: str) -> str:
    """argparse's messages in the words of all others: `--limit abc: expected a whole number`."""
    if found := _BAD_NUMBER.fullmatch(message):
        flag, kind, value = found.groups()
        return f"{flag} {value}: expected {'a whole number' if kind == 'int' else 'a number'}"
    if found := _BAD_CHOICE.fullmatch(message):
        name, value, choices = found.groups()
        known = ", ".join(choice.strip(" '") for choice in choices.split(","))
        return f"{f'{name} ' if name.startswith('-') else ''}{value}: expected one of {known}"
    return message


def _kebab_token(token: str) -> str:
    if not token.startswith("--"):
        return token
    name, equals, value = token.partition("=")
    return name.replace("_", "-") + equals + value


def unknown_flag(given: str, flags: Iterable[str], prog: str) -> str:
    """The message for an unknown flag or an unexpected word."""
    if not given.startswith("-"):
        return f"unexpected argument '{given}'. See {prog} --help"
    # Without the dashes, which all flags share and which would make any two similar.
    names = {flag.lstrip("-"): flag for flag in flags}
    near = nearest(given.lstrip("-").replace("_", "-"), names, n=1)
    hint = ask([names[name] for name in near])
    return " ".join(filter(None, (f"unknown flag '{given}'.", hint, f"See {prog} --help")))


def as_flag(field_name: str) -> str:
    return "--" + field_name.replace("_", "-")


@dataclass
class FieldArgs:
    """A command line of `train` or `show`, split into words, not yet checked against a config."""

    positionals: list[str] = field(default_factory=list)
    options: dict[str, list[str]] = field(default_factory=dict)
    """The verb's own flags: name -> the values of all its occurrences."""
    fields: dict[str, list[str]] = field(default_factory=dict)
    """All other flags, in snake case: name -> the values of the last occurrence."""
    spelled: dict[str, str] = field(default_factory=dict)
    """Flags of `fields` as they were written, for messages."""

    def has(self, option: str) -> bool:
        return option in self.options

    def last(self, option: str) -> str | None:
        values = self.options.get(option)
        return values[-1] if values else None


def parse_fields(argv: Sequence[str], arity: Mapping[str, str]) -> FieldArgs:
    """Split `argv` into positionals, the verb's own options (`arity`: name -> number of values) and
    field flags."""
    args = FieldArgs()
    words = list(argv)
    while words:
        word = words.pop(0)
        if not _is_flag(word):
            args.positionals.append(word)
            continue
        written, equals, value = word.partition("=")
        name = SHORT.get(written) or written.removeprefix("--").replace("-", "_")
        if name not in arity and not written.startswith("--"):
            raise UsageError(unknown_flag(written, [*SHORT, *map(as_flag, arity)], "gsolve"))
        values = [value] if equals else _take(words, arity.get(name, MANY))
        if name not in arity:
            args.fields[name], args.spelled[name] = values, written
            continue
        if arity[name] == ONE and not values:
            raise UsageError(f"{written} needs a value")
        if arity[name] == NONE and values:
            raise UsageError(f"{written} takes no value, but was given '{value}'")
        args.options.setdefault(name, []).extend(values)
    _rescue_target(args)
    return args


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _VALUE.match(word)


def _take(words: list[str], arity: str) -> list[str]:
    most = {NONE: 0, ONE: 1, OPTIONAL: 1, MANY: len(words)}[arity]
    values: list[str] = []
    while words and len(values) < most and not _is_flag(words[0]):
        values.append(words.pop(0))
    return values


def _rescue_target(args: FieldArgs) -> None:
    """`train --n-envs 4 CartPole-v1:ppo`: the last word is the target, not a second value."""
    if args.positionals or args.has("resume") or args.has("config_id"):
        return
    groups = [
        values for values in (*args.fields.values(), args.options.get("env_kwargs")) if values
    ]
    certain = [values for values in groups if _SURE_TARGET.fullmatch(values[-1])]
    second = [values for values in groups if len(values) > 1 and _TARGET.fullmatch(values[-1])]
    for values in (*certain, *second):
        args.positionals.append(values.pop())
        return


def target_of(args: FieldArgs) -> str | None:
    """The name of the config: the first word, or `--config_id`."""
    targets = [*args.positionals, *args.options.get("config_id", [])]
    if len(targets) > 1:
        raise UsageError(f"expected one target, got {len(targets)}: {', '.join(targets)}")
    return targets[0] if targets else None


def overrides_of(args: FieldArgs) -> dict[str, Any]:
    """The fields that the flags set, with the values that YAML would give them. Dotted keys are
    places inside a field."""
    from gymnasium_solver.config.yaml_file import parse_value

    values: dict[str, Any] = {}
    for text in _settings(args):
        key, value = _pair(text, "--set")
        values[key] = parse_value(value)
    for name, words in args.fields.items():
        if not words:
            bare = name.removeprefix("no_")
            values[bare] = bare == name
        else:
            parsed = [parse_value(word) for word in words]
            values[name] = parsed[0] if len(parsed) == 1 else parsed
    for text in args.options.get("env_kwargs", []):
        if text.startswith("{"):
            values["env_kwargs"] = parse_value(text)
            continue
        key, value = _pair(text, "--env-kwargs")
        values[f"env_kwargs.{key}"] = parse_value(value)
    return values


def _settings(args: FieldArgs) -> list[str]:
    return [*args.options.get("set", []), *args.options.get("override", [])]


def _pair(text: str, option: str) -> tuple[str, str]:
    """Split `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{option} takes KEY=VALUE, but was given '{text}'")
    return key, value


def load_target(args: FieldArgs, target: str, options: Mapping[str, str]) -> "Config":
    """The config for these arguments; UsageError for a flag that is not a field. With --trust code
    of a run made elsewhere is imported."""
    from gymnasium_solver.training.prepare import load_config

    if not all(args.fields.values()):
        _check_flags(args, options)
    overrides, fill = changes_of(args)
    try:
        return load_config(
            target,
            overrides=overrides,
            fill=fill,
            overlays=args.options.get("overlay", []),
            trust=args.has("trust"),
        )
    except GsolveError:
        _check_flags(args, options)  # a flag that is not a field is reported first
        raise


def changes_of(args: FieldArgs) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields that the flags set, and the texts of `--set`, which fill placeholders."""
    fill = dict(_pair(text, "--set") for text in _settings(args))
    return {key: value for key, value in overrides_of(args).items() if key not in fill}, fill


def _check_flags(args: FieldArgs, options: Mapping[str, str]) -> None:
    """Check that every flag is a field of some algorithm. Names that the config's own errors
    explain better (a field of another algorithm, a name of another library) are left to them. This
    imports all algorithms, so it is done only if a flag has no value or the config is invalid.
    """
    from gymnasium_solver.algos.file_schema import json_schema
    from gymnasium_solver.config.foreign import FOREIGN

    fields = json_schema()["properties"]
    known = {*fields, *FOREIGN}
    names = [*fields, *options, *FOREIGN]
    for name, words in args.fields.items():
        written, first = args.spelled[name], name.partition(".")[0]
        if not words and first.startswith("no_") and first not in known:
            first = first.removeprefix("no_")
        # A name similar to one of another library is also explained by the config.
        if first not in known and not FOREIGN.keys() & set(nearest(first, names, n=1)):
            flags = [as_flag(field) for field in (*fields, *options)]
            raise UsageError(unknown_flag(written, flags, "gsolve train <target>"))
        if not words and first in fields and not _takes_boolean(fields[first]):
            raise UsageError(f"{written} needs a value")


def _takes_boolean(schema: Mapping[str, Any]) -> bool:
    return (
        schema.get("type") == "boolean"
        or any(isinstance(value, bool) for value in schema.get("enum", []))
        or any(_takes_boolean(option) for option in schema.get("anyOf", []))
    )
