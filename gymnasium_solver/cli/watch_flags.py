"""Flags that `gsolve video`, `gsolve play` and `gsolve explain` share."""

import re
from typing import Any

from gymnasium_solver.cli.flags import Parser, UsageError


def add_shared(parser: Parser) -> None:
    parser.add_argument(
        "--seed",
        default="test",
        metavar="test|val|train|INT",
        help="seed of the environments (default: test)",
    )
    parser.add_argument("--fps", metavar="X", help="steps per second (default: the natural speed)")
    add_acting(parser)


def add_acting(parser: Parser) -> None:
    """How the agent acts, in which environment, and where the run is."""
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--deterministic",
        "--greedy",
        action="store_true",
        help="the best action (default: as in the run's evaluations)",
    )
    mode.add_argument("--sampled", action="store_true", help="sampled actions")
    parser.add_argument(
        "--env-kwargs",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change arguments of the environment",
    )
    parser.add_trust()
    parser.add_runs_dir()


def greedy_of(args: Any) -> bool | None:
    """None: as in the run's evaluations."""
    return bool(args.deterministic) if args.deterministic or args.sampled else None


def count(flag: str, text: str | None) -> int | None:
    """A whole number of at least 1."""
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{flag} {text}: expected a whole number of at least 1")
    return int(text)


def fps_of(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        fps = float(text)
    except ValueError:
        fps = 0.0
    if not 0 < fps <= 1000:
        raise UsageError(f"--fps {text}: expected a number above 0, up to 1000")
    return fps


def seed_of(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def env_kwargs_of(pairs: list[str]) -> dict[str, Any]:
    """As overrides of a config."""
    from gymnasium_solver.config.yaml_file import parse_value

    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--env-kwargs takes KEY=VALUE, but was given '{pair}'")
        values[f"env_kwargs.{key}"] = parse_value(value)
    return values


def grid_of(text: str | None) -> tuple[int, int]:
    """(rows, columns); (0, 0) without a grid."""
    if text is None:
        return 0, 0
    match = re.fullmatch(r"(\d{1,2})[xX×](\d{1,2})", text)
    if not match or not 1 <= int(match[1]) * int(match[2]) <= 16:
        raise UsageError(f"--grid {text}: expected rows x columns of 1 to 16 tiles, such as 4x4")
    return int(match[1]), int(match[2])
