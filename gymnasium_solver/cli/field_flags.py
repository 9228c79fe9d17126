"""Verbs for which any config field is a flag: `train`, `show`, `net`, `eval`, `sweep`, `tune-envs`.

A field flag means what the same line in the YAML means: `--policy-lr 1e-3` is `policy_lr: 1e-3`,
`--hidden-dims 64 64` is `hidden_dims: [64, 64]`, a bare `--normalize-obs` is `normalize_obs: true`
and `--no-normalize-obs` is `normalize_obs: false`. Kebab and snake spellings are the same flag. The
verb's own flags are declared as in flags.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    OPTIONAL,
    REPEATED,
    VERBS,
    Args,
    Parser,
    UsageError,
    Verb,
    Work,
    as_known,
    declared,
    env_kwargs_of,
    key_value,
    unknown_flag,
    yaml_values,
)
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.suggest import nearest

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

TEXTS: dict[str, str] = {}  # what each of these verbs that has been imported takes
MOST_VALUES = {NONE: 0, ONE: 1, OPTIONAL: 1, REPEATED: 1}  # of all other flags any number
_VALUE = re.compile(r"-(\d|\.\d|\.?inf)")  # -200, -.5 and -inf are values, -q is a flag
_SURE_TARGET = re.compile(r".+\.(ya?ml|json)(:\w+)?|[\w./-]+-v\d+(:\w+)?")  # a file, or Env-v1:name
_TARGET = re.compile(r"[\w./-]+:[A-Za-z_]\w*")  # also mc:rtg, which is a value


def field_verb(text: str, *, target_help: bool = False) -> Callable[[Work], Verb]:
    """Declare a verb that takes fields, by its usage and what follows in `verb`. `target_help`: the
    verb itself answers --help after a target."""
    name = text.split()[2]  # usage: gsolve NAME
    TEXTS[name] = text

    def declare(work: Work) -> Verb:
        def run(argv: Sequence[str]) -> int:
            args = read_fields(name, argv)
            if args.help and not (target_help and target_of(args)):
                Parser(name, text).print_help()
                return 0
            return work(args) or 0

        VERBS[name] = run
        return run

    return declare


def read_fields(verb: str, argv: Sequence[str]) -> Args:
    """Split a command line into words, the verb's own flags, and flags of fields, which are not
    checked against a config yet."""
    parser = Parser(verb, TEXTS[verb])
    own = {flag: one for one in parser.declared for flag in one.names if one.names[-1].islower()}
    own |= dict.fromkeys(("-h", "--help"), next(declared("--help")))
    words: list[str] = []
    fields: dict[str, list[str]] = {}
    spelled: dict[str, str] = {}
    ours: list[str] = []
    todo = list(argv)
    while todo:
        word = todo.pop(0)
        if not _is_flag(word):
            words.append(word)
            continue
        written, equals, value = word.partition("=")
        name = as_known(written, own)
        flag = own.get(name)
        if flag is None and not written.startswith("--"):
            raise UsageError(unknown_flag(written, own, "gsolve"))
        values = [value] if equals else _take(todo, MANY if flag is None else flag.arity)
        if flag is None:
            field = written.removeprefix("--").replace("-", "_")
            fields[field], spelled[field] = values, written
        else:
            ours += [f"{flag.names[0]}={value}" for value in values] or [flag.names[0]]
    is_help = "--help" in ours
    args = parser.read([word for word in ours if word != "--help"])
    args.verb, args.help, args.command = verb, is_help, ["gsolve", verb, *argv]
    args.words, args.fields, args.spelled, args.own = words, fields, spelled, list(own)
    _rescue_target(args)
    return args


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _VALUE.match(word)


def _take(words: list[str], arity: str) -> list[str]:
    most = MOST_VALUES.get(arity, len(words))
    values: list[str] = []
    while words and len(values) < most and not _is_flag(words[0]):
        values.append(words.pop(0))
    return values


def _rescue_target(args: Args) -> None:
    """`train --n-envs 4 CartPole-v1:ppo`: the last word is the target, not a second value."""
    if args.words or getattr(args, "resume", None) or getattr(args, "config_id", None):
        return
    groups = [*args.fields.values(), getattr(args, "env_kwargs", [])]
    certain = [values for values in groups if values and _SURE_TARGET.fullmatch(values[-1])]
    second = [values for values in groups if len(values) > 1 and _TARGET.fullmatch(values[-1])]
    for values in (*certain, *second):
        args.words.append(values.pop())
        return


def target_of(args: Args) -> str | None:
    """The name of the config: the first word, or `--config_id`."""
    targets = [*args.words, *getattr(args, "config_id", [])]
    if len(targets) > 1:
        raise UsageError(f"expected one target, got {len(targets)}: {', '.join(targets)}")
    return targets[0] if targets else None


def needed_target(args: Args) -> str:
    """The name of the config; UsageError if there is none."""
    if (target := target_of(args)) is None:
        example = f"gsolve {args.verb} CartPole-v1:ppo"
        raise UsageError(f"no target given, for example: {example}. See gsolve {args.verb} --help")
    return target


def overrides_of(args: Args) -> dict[str, Any]:
    """The fields that the flags set, with the values that YAML would give them. Dotted keys are
    places inside a field."""
    from gymnasium_solver.config.yaml_file import parse_value

    values = yaml_values(args.set, "--set")
    for name, words in args.fields.items():
        if not words:
            bare = name.removeprefix("no_")
            values[bare] = bare == name
        else:
            parsed = [parse_value(word) for word in words]
            values[name] = parsed[0] if len(parsed) == 1 else parsed
    return values | (env_kwargs_of(args) if hasattr(args, "env_kwargs") else {})


def changes_of(args: Args) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields that the flags set, and the texts of `--set`, which fill placeholders."""
    fill = dict(key_value(text, "--set") for text in args.set)
    return {key: value for key, value in overrides_of(args).items() if key not in fill}, fill


def load_target(args: Args, target: str, *, chooses: bool = False) -> "Config":
    """The config for these arguments; UsageError for a flag that is not a field. With --trust code
    of a run made elsewhere is imported. `chooses`: as in load_config."""
    from gymnasium_solver.training.prepare import load_config

    if not all(args.fields.values()):
        _check_flags(args)
    overrides, fill = changes_of(args)
    overlays = getattr(args, "overlay", [])
    try:
        return load_config(
            target,
            overrides=overrides,
            fill=fill,
            overlays=overlays,
            trust=args.trust,
            chooses=chooses,
        )
    except GsolveError:
        _check_flags(args)  # a flag that is not a field is reported first
        raise


def _check_flags(args: Args) -> None:
    """Check that every flag is a field of some algorithm. Names that the config's own errors
    explain better (a field of another algorithm, a name of another library) are left to them. This
    imports all algorithms, so it is done only if a flag has no value or the config is invalid."""
    from gymnasium_solver.algos.file_schema import json_schema
    from gymnasium_solver.config.foreign import FOREIGN

    fields = json_schema()["properties"]
    known = {*fields, *FOREIGN}
    own = [flag.removeprefix("--").replace("-", "_") for flag in args.own]
    for name, words in args.fields.items():
        written, first = args.spelled[name], name.partition(".")[0]
        if not words and first.startswith("no_") and first not in known:
            first = first.removeprefix("no_")
        # A name similar to one of another library is also explained by the config.
        if first not in known:
            near = nearest(first, [*fields, *own, *FOREIGN], n=1)
            if not FOREIGN.keys() & set(near):
                flags = [*map(as_flag, fields), *args.own]
                raise UsageError(unknown_flag(written, flags, "gsolve train <target>"))
        if not words and first in fields and not _takes_boolean(fields[first]):
            raise UsageError(f"{written} needs a value")


def as_flag(field_name: str) -> str:
    return "--" + field_name.replace("_", "-")


def _takes_boolean(schema: Mapping[str, Any]) -> bool:
    return (
        schema.get("type") == "boolean"
        or any(isinstance(value, bool) for value in schema.get("enum", []))
        or any(_takes_boolean(option) for option in schema.get("anyOf", []))
    )
