"""What a verb takes is declared by the text of its help:

    @verb('''
    tag: Add tags to a run.

    RUN
    [TAG...]           tags to add; none: show them
    --remove TAG...    tags to remove
    --json --runs-dir

    examples:
      gsolve tag @last paper
    ''')
    def tag(args: Args) -> int | None: ...       # args.run, args.tags, args.remove, args.json

Paragraphs: what it does, what it takes, and more. `X...` is one or several, `[X]` may be left out,
`X=3` has a default. The text of a flag may end in "repeatable" (it takes one value each time) or
"required", or begin with "internal" (it is not shown). The word in capitals gives the type: N is a
whole number from 1 on, INT one from 0 on (all in TYPES); `a|b` is a choice. Arguments that many
verbs share are named without a text (SHARED). Only the standard library is imported here.
"""

import argparse
import math
import re
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.suggest import ask, did_you_mean, nearest

if TYPE_CHECKING:
    from pathlib import Path

    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.runs.run import Run

# How many values a flag takes; REPEATED: one at each of its occurrences.
NONE, ONE, OPTIONAL, MANY, ANY, REPEATED = "none", "one", "optional", "many", "any", "repeated"
NARGS = {OPTIONAL: "?", MANY: "+", ANY: "*"}
NO_VALUE = "-"  # of a flag whose value may be left out, if it is
_ARGUMENT = re.compile(r"-|\[?[A-Z]{2,}|\[?[a-z]+\|")  # how a line that declares one begins
_DEFAULT = re.compile(r"(?<=[A-Za-z\]])=(?=[^A-Z])")  # N=3, not KEY=VALUE
_CHOICE = re.compile(r"[a-z_]+(\|[a-z_]+)+")
_BAD_VALUE = re.compile(r"argument (-\S+?)(/-\S+)*: (.*: expected .*)")
_BAD_COUNT = re.compile(r"argument (-\S+?)(/-\S+)*: (expected .*argument|(ignored .*))")
_BAD_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)")
SHARED_TEXT = """
RUN                         @last, an id or a unique part of one, a path
RUN[/CHECKPOINT]            @last, an id or a part of one; then /@best, /@last or /<env_steps>
                            (default: @best)
--json                      print JSON, for programs
--runs-dir DIR              folder of the runs (default: $GSOLVE_RUNS or ./runs)
--trust                     import the code that the config of a run made elsewhere names
--seed test|val|train|INT=test   seed of the environments
--fps FPS                   steps per second (default: the natural speed)
--deterministic, --greedy   the best action (default: as in the run's evaluations)
--sampled                   sampled actions
--env-kwargs KEY=VALUE...   change arguments of the environment
--set, -s KEY=VALUE         fill ${KEY} in the config, or set a field; repeatable
--overlay NAME...           lay named sets of fields over the config, such as quick or wide
--log-level LEVEL           show messages from debug, info (default), warning or error on
--backend NAME              local (default), ray, slurm, dstack or modal
--resources TEXT            what each run gets on a cluster, such as "cpus=4 memory=8 hours=2"
                            (default: an estimate); here gpus=1, or gpus=0.25 to share a card
--sbatch TEXT               further options of sbatch, such as "partition=gpu account=x"
--max-steps, --steps N=1000      cut an episode after N steps
"""

# Flags of the reference, and those that mean the same now; "": the value is an argument by itself.
FORMER = {
    "--override": "--set", "--filter": "", "--run-id": "", "--config-id": "",
    "--headless": "--text", "--plot-metrics": "--show=plots",
    "--no-plot-metrics": "--hide=plots", "--show-obs": "--show=observations",
    "--no-show-obs": "--hide=observations",
    "--toolbar": "--show=toolbar", "--no-toolbar": "--hide=toolbar",
    "--show-preprocessing": "--show=network", "--show-actions": "--show=actions",
    "--show-cnn-filters": "--show=filters", "--show-gradcam": "--show=cam",
}  # fmt: skip


class UsageError(GsolveError):
    """The command line itself is wrong."""


class Args(argparse.Namespace):
    """A command line that was read: each flag and each word is an attribute. Where any config field
    is a flag, `words` are the other words, `fields` the flags of fields, each with its values,
    `spelled` these flags as they were written, `own` the flags of the verb, and `command` is all of
    it. The methods say what several verbs make of them."""

    verb: str
    words: list[str]
    fields: dict[str, list[str]]
    spelled: dict[str, str]
    own: list[str]
    command: list[str]

    def root(self) -> "Path":
        """The folder of the runs."""
        from gymnasium_solver.runs.run import runs_root

        return runs_root(self.runs_dir)

    def resolved_run(self) -> "Run":
        """The run that the word RUN names."""
        from gymnasium_solver.runs.resolve import resolve_run

        return resolve_run(self.run, self.root())

    def wanted_seed(self) -> int | str:
        return int(self.seed) if self.seed.isdecimal() else str(self.seed)

    def wants_greedy(self) -> bool | None:
        """How the agent acts; None: as in the run's evaluations."""
        if self.deterministic and self.sampled:
            raise UsageError("--deterministic and --sampled exclude each other")
        return bool(self.deterministic) if self.deterministic or self.sampled else None

    def grid_size(self) -> tuple[int, int]:
        """(rows, columns); (0, 0) without a grid."""
        if self.grid is None:
            return 0, 0
        match = re.fullmatch(r"(\d{1,2})[xX×](\d{1,2})", self.grid)
        if not match or not 1 <= int(match[1]) * int(match[2]) <= 16:
            expected = "expected rows x columns of 1 to 16 tiles, such as 4x4"
            raise UsageError(f"--grid {self.grid}: {expected}")
        return int(match[1]), int(match[2])

    def config_name(self) -> str | None:
        """The name of the config: the first word, or `--config_id`."""
        targets = [*self.words, *getattr(self, "config_id", [])]
        if len(targets) > 1:
            raise UsageError(f"expected one target, got {len(targets)}: {', '.join(targets)}")
        return targets[0] if targets else None

    def needed_config(self) -> str:
        """The name of the config; UsageError if there is none."""
        if (target := self.config_name()) is None:
            example = f"gsolve {self.verb} CartPole-v1:ppo"
            see = f"See gsolve {self.verb} --help"
            raise UsageError(f"no target given, for example: {example}. {see}")
        return target

    def env_overrides(self) -> dict[str, Any]:
        """`--env-kwargs` as overrides of a config: words KEY=VALUE, or all of them as one block."""
        from gymnasium_solver.config.yaml_file import parse_value

        changes: dict[str, Any] = {}
        for text in self.env_kwargs:
            if text.startswith("{"):
                changes["env_kwargs"] = parse_value(text)
            else:
                pair = yaml_values([text], "--env-kwargs")
                changes |= {f"env_kwargs.{key}": value for key, value in pair.items()}
        return changes

    def overrides(self) -> dict[str, Any]:
        """The fields that the flags set, with the values that YAML would give them. Dotted keys are
        places inside a field."""
        from gymnasium_solver.config.yaml_file import parse_value

        values = yaml_values(self.set, "--set")
        for name, words in self.fields.items():
            if not words:
                bare = name.removeprefix("no_")
                values[bare] = bare == name
            else:
                parsed = [parse_value(word) for word in words]
                values[name] = parsed[0] if len(parsed) == 1 else parsed
        return values | (self.env_overrides() if hasattr(self, "env_kwargs") else {})

    def changes(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The fields that the flags set, and the texts of `--set`, which fill placeholders."""
        fill = dict(key_value(text, "--set") for text in self.set)
        return {key: value for key, value in self.overrides().items() if key not in fill}, fill

    def load_config(self, target: str, *, chooses: bool = False) -> "Config":
        """The config for these arguments; UsageError for a flag that is not a field. With --trust
        code of a run made elsewhere is imported. `chooses`: as in load_config."""
        from gymnasium_solver.training.prepare import load_config

        if not all(self.fields.values()):
            self._check_fields()
        overrides, fill = self.changes()
        how = {"overlays": getattr(self, "overlay", []), "trust": self.trust, "chooses": chooses}
        try:
            return load_config(target, overrides=overrides, fill=fill, **how)
        except GsolveError:
            self._check_fields()  # a flag that is not a field is reported first
            raise

    def _check_fields(self) -> None:
        """Check that every flag is a field of some algorithm. Names that the config's own errors
        explain better (a field of another algorithm, a name of another library) are left to them.
        Importing all algorithms is slow: only if a flag has no value or the config is invalid."""
        from gymnasium_solver.algos.file_schema import json_schema
        from gymnasium_solver.config.foreign import FOREIGN

        fields = json_schema()["properties"]
        known = {*fields, *FOREIGN}
        own = [flag.removeprefix("--").replace("-", "_") for flag in self.own]
        for name, words in self.fields.items():
            written, first = self.spelled[name], name.partition(".")[0]
            if not words and first.startswith("no_") and first not in known:
                first = first.removeprefix("no_")
            # A name similar to one of another library is also explained by the config.
            if first not in known:
                near = nearest(first, [*fields, *own, *FOREIGN], n=1)
                if not FOREIGN.keys() & set(near):
                    flags = [*map(as_flag, fields), *self.own]
                    raise UsageError(unknown_flag(written, flags, "gsolve train <target>"))
            if not words and first in fields and not _takes_boolean(fields[first]):
                raise UsageError(f"{written} needs a value")


class Declared(NamedTuple):
    """One argument of a verb."""

    names: tuple[str, ...]  # the names of a flag; empty for a positional argument
    value: str  # its name in the help
    arity: str
    help: str
    default: str | None = None

    @property
    def dest(self) -> str:
        if self.names:
            return next(n for n in self.names if n[1] == "-").lstrip("-").replace("-", "_")
        if _CHOICE.fullmatch(self.value):
            return "action"
        last = re.findall("[A-Z_]+", self.value)[-1].lower()
        return f"{last}s" if self.arity in (MANY, ANY) else last

    def convert(self, text: str) -> Any:
        """The value of a text; ArgumentTypeError says what is expected."""
        return TYPES.get(self.value, str)(text)

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        default = "" if self.default is None else f" (default: {self.default})"
        options: dict[str, Any] = {"help": f"{self.help}{default}".replace("%", "%%")}
        if self.help.startswith("internal"):
            options["help"] = argparse.SUPPRESS
        if self.arity == NONE:
            parser.add_argument(*self.names, action="store_true", **options)
            return
        options |= {"metavar": self.value, "type": self.convert, "default": self.default}
        if _CHOICE.fullmatch(self.value):
            options["choices"] = self.value.split("|")
        if self.arity in NARGS:
            options["nargs"] = NARGS[self.arity]
        if not self.names:
            options["default"] = [] if self.arity == ANY else self.default
            parser.add_argument(self.dest, **options)
            return
        if self.arity in (MANY, REPEATED):
            options |= {"action": "extend" if self.arity == MANY else "append", "default": []}
        options["required"] = self.help.endswith("required")
        if self.arity == OPTIONAL:
            options["const"] = NO_VALUE
        parser.add_argument(*self.names, dest=self.dest, **options)


def declared(text: str) -> Iterator[Declared]:
    """The arguments that lines declare; one that is further indented continues the help."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if found and line.startswith("    "):
            found[-1][1] += f" {line.strip()}"
        elif line.strip():
            found.append([*re.split("  +", line.strip(), maxsplit=1), ""][:2])
    for what, text in found:
        words = what.split(" ")
        if not text and all(word in SHARED for word in words):
            yield from (SHARED[word] for word in words)
            continue
        text = text.strip()
        names = tuple(word.rstrip(",") for word in words if word.startswith("-"))
        yield _with_arity(names, " ".join(words[len(names) :]), text)


def _with_arity(names: tuple[str, ...], value: str, text: str) -> Declared:
    value, *given = _DEFAULT.split(value, maxsplit=1)
    default = given[0] if given else None
    plain, arity = value, REPEATED if text.endswith("repeatable") else ONE
    if value.startswith("["):
        plain, arity = value.strip("[]"), OPTIONAL
    if plain.endswith("..."):
        plain, arity = plain[:-3], ANY if arity == OPTIONAL else MANY
    if names and not value:
        arity = NONE
    text = text or getattr(SHARED.get(plain), "help", "")
    return Declared(names, plain, arity, text, default)


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[\d_]*\d", text) or int(text) < least:
            expected = f"expected a whole number of at least {least}"
            raise argparse.ArgumentTypeError(f"{text}: {expected}")
        return int(text)

    return read


def _number(
    expected: str, is_right: Callable[[float], bool], convert: Callable[[float], float] = float
) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text.replace("_", ""))
        except ValueError:
            number = math.nan
        if not is_right(number):
            raise argparse.ArgumentTypeError(f"{text}: expected a number {expected}")
        return convert(number)

    return read


def _time(text: str) -> float:
    """Seconds of 90s, 30m, 2h or 1d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a time such as 90s, 30m, 2h or 1d")
    units = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    return float(match[1]) * units.get(match[2], 1.0)


TYPES = {
    "N": _whole(1),
    "INT": _whole(0),
    "FPS": _number("above 0, up to 1000", lambda x: 0 < x <= 1000),
    "S": _number("above 0", lambda x: 0 < x < math.inf),
    "SECONDS": _number("of at least 0", lambda x: 0 <= x < math.inf),
    "COUNT": _number("such as 1e6", lambda x: 1 <= x < 2**63 and x % 1 == 0, int),
    "ENV_STEPS": _number("of env steps", lambda x: 0 <= x < 2**63 and x % 1 == 0, int),
    "TIME": _time,
}
SHARED: dict[str, Declared] = {}
SHARED |= {(one.names or [one.value])[0]: one for one in declared(SHARED_TEXT)}


class Parser(argparse.ArgumentParser):
    """argparse with whole flags only, kebab or snake, and a did-you-mean for unknown ones."""

    def __init__(self, name: str, text: str) -> None:
        parts = textwrap.dedent(text).strip().split("\n\n")
        usage = parts.pop(0).removeprefix("usage: ") if parts[0].startswith("usage: ") else None
        takes = [i for i, part in enumerate(parts) if _ARGUMENT.match(part)]
        place = takes[0] if takes else 1
        super().__init__(
            prog=f"gsolve {name}",
            usage=usage,
            description="\n\n".join(parts[:place]),
            epilog="\n\n".join(parts[place + len(takes[:1]) :]),
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.declared = list(declared(parts[place])) if takes else []
        for one in self.declared:
            one.add_to(self)

    def read(self, argv: Sequence[str]) -> Args:
        known = {name for action in self._actions for name in action.option_strings}
        words = [word for given in argv if (word := as_known(given, known)) or not given]
        # Words may follow a flag: set RUN --at 5 FIELD=VALUE.
        args, extra = self.parse_known_intermixed_args(words, Args())
        if extra:
            wrong = next((word for word in extra if word.startswith("-")), extra[0])
            raise UsageError(unknown_flag(wrong.partition("=")[0], known, self.prog))
        return args

    def error(self, message: str) -> NoReturn:
        text = _plain(message)
        raise UsageError(f"{text}{'' if text.endswith('?') else '.'} See {self.prog} --help")


def as_known(word: str, flags: Container[str]) -> str:
    """A word with the name of its flag in kebab case, or the present name of a former one."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    name = name.replace("_", "-")
    if name in FORMER and name not in flags:
        name, equals = FORMER[name], equals if FORMER[name] else ""
    return f"{name}{equals}{value}"


def _plain(message: str) -> str:
    """argparse's messages in the words of all others: `--limit abc: expected a whole number`."""
    if found := _BAD_COUNT.fullmatch(message):
        return f"{found[1]} " + ("needs a value" if found[4] is None else "takes no value")
    if found := _BAD_VALUE.fullmatch(message):
        return f"{found[1]} {found[3]}"
    if found := _BAD_CHOICE.fullmatch(message):
        name, value, choices = found.groups()
        known = [choice.strip(" '") for choice in choices.split(",")]
        flag, hint = f"{name} " if name.startswith("-") else "", did_you_mean(value, known)
        expected = f"expected one of {', '.join(known)}"
        return f"{flag}{value}: {expected}{f'. {hint}' if hint else ''}"
    return message


def unknown_flag(given: str, flags: Iterable[str], prog: str) -> str:
    """The message for an unknown flag or an unexpected word."""
    if not given.startswith("-"):
        return f"unexpected argument '{given}'. See {prog} --help"
    # Without the dashes, which all flags share and which would make any two similar.
    names = {flag.lstrip("-"): flag for flag in flags}
    near = nearest(given.lstrip("-").replace("_", "-"), names, n=1)
    hint = ask([names[name] for name in near])
    return " ".join(filter(None, (f"unknown flag '{given}'.", hint, f"See {prog} --help")))


# --- verbs

Verb = Callable[[Sequence[str]], int]
Work = Callable[[Args], int | None]
VERBS: dict[str, Verb] = {}
"""What has been imported. The name of a verb within a verb has two words: "sweep show"."""


def verb(text: str, *, target_help: bool = False) -> Callable[[Work], Verb]:
    """Declare a verb; the function returns its exit code, None for 0. One whose text begins with
    its usage takes fields as flags too; with `target_help` it answers --help after a target."""
    has_fields = text.lstrip().startswith("usage: ")
    if has_fields:
        name = text.split()[2]  # usage: gsolve NAME
        TEXTS[name] = text
    else:
        name, _, text = text.strip().partition(": ")

    def declare(work: Work) -> Verb:
        def run(argv: Sequence[str]) -> int:
            args = read_fields(name, argv) if has_fields else Parser(name, text).read(argv)
            args.verb = name
            if has_fields and args.help and not (target_help and args.config_name()):
                Parser(name, text).print_help()
                return 0
            return work(args) or 0

        VERBS[name] = run
        return run

    return declare


def run_verb(name: str, argv: Sequence[str]) -> int:
    """Run a verb whose module is imported, or the verb within it that the first word names."""
    inner = VERBS.get(f"{name} {argv[0]}") if argv else None
    return inner(argv[1:]) if inner else VERBS[name](argv)


# --- what several verbs make of their arguments


def key_value(text: str, flag: str) -> tuple[str, str]:
    """Split `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{flag} takes KEY=VALUE, but was given '{text}'")
    return key.strip(), value.strip()


def yaml_values(pairs: Iterable[str], flag: str) -> dict[str, Any]:
    """`KEY=VALUE` words with the values that YAML would give them."""
    from gymnasium_solver.config.yaml_file import parse_value

    split = [key_value(pair, flag) for pair in pairs]
    for key, value in split:
        if value == "None":
            quoted = "'\"None\"'"
            raise UsageError(f"{flag} {key}=None: write {key}=null, or {key}={quoted} for the text")
    return {key: parse_value(value) for key, value in split}


# --- verbs for which any config field is a flag: `train`, `show`, `net`, `eval`, `sweep`, ...
#
# A field flag means what the same line in the YAML means: `--policy-lr 1e-3` is `policy_lr: 1e-3`,
# `--hidden-dims 64 64` is `hidden_dims: [64, 64]`, a bare `--normalize-obs` is `true` and
# `--no-normalize-obs` is `false`. Kebab and snake spellings are the same flag.

TEXTS: dict[str, str] = {}  # what each of these verbs that has been imported takes
MOST_VALUES = {NONE: 0, ONE: 1, OPTIONAL: 1, REPEATED: 1}  # of all other flags any number
_VALUE = re.compile(r"-(\d|\.\d|\.?inf)")  # -200, -.5 and -inf are values, -q is a flag
_SURE_TARGET = re.compile(r".+\.(ya?ml|json)(:\w+)?|[\w./-]+-v\d+(:\w+)?")  # a file, or Env-v1:name
_TARGET = re.compile(r"[\w./-]+:[A-Za-z_]\w*")  # also mc:rtg, which is a value


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
    args.help, args.command = is_help, ["gsolve", verb, *argv]
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
    """`train --n-envs 4 CartPole-v1:ppo`: the last word is the target, not a second value. Without
    one, `--env-id CartPole-v1` names it."""
    if args.words or getattr(args, "resume", None) or getattr(args, "config_id", None):
        return
    fields = dict(args.fields)
    env_id = fields.pop("env_id", []) if len(fields.get("env_id", [])) == 1 else []
    groups = [*fields.values(), getattr(args, "env_kwargs", [])]
    certain = [values for values in groups if values and _SURE_TARGET.fullmatch(values[-1])]
    second = [values for values in groups if len(values) > 1 and _TARGET.fullmatch(values[-1])]
    for values in (*certain, *second):
        args.words.append(values.pop())
        return
    if env_id:
        args.words = args.fields.pop("env_id")


def as_flag(field_name: str) -> str:
    return "--" + field_name.replace("_", "-")


def _takes_boolean(schema: Mapping[str, Any]) -> bool:
    return (
        schema.get("type") == "boolean"
        or any(isinstance(value, bool) for value in schema.get("enum", []))
        or any(_takes_boolean(option) for option in schema.get("anyOf", []))
    )
