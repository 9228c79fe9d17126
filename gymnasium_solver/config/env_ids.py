"""Ids of environments that are not in a registry: given as Python code (envs/given.py), as
`Python/MyEnv-v0`, or written in C (envs/engines/c), as `c:path/my_env.c` and `c:snake`."""

import re

PYTHON_ENV = "Python/"
C_ENV = "c:"
_SHIPPED = re.compile(r"c:[a-z0-9_]+")


def is_python_env(env_id: str) -> bool:
    """Whether the environment was given as Python code, so that only Python can make it again."""
    return env_id.startswith(PYTHON_ENV)


def is_c_file(env_id: str) -> bool:
    """Whether it is a C file of somebody's, which is compiled; `c:snake` is shipped."""
    return env_id.startswith(C_ENV) and not _SHIPPED.fullmatch(env_id)


def as_env_id(given: str) -> str:
    """The id of a C file that is given by its path alone; any other text as it is."""
    return f"{C_ENV}{given}" if given.endswith(".c") and not given.startswith(C_ENV) else given


def split_target(target: str) -> tuple[str, str | None]:
    """The name and the variant of `name:variant`; the colon of `c:snake` is part of the name."""
    start = len(C_ENV) if target.startswith(C_ENV) else 0
    head, colon, tail = target[start:].rpartition(":")
    return (target[:start] + head, tail) if colon else (target, None)


def file_stem(env_id: str) -> str:
    """The name of an environment's config file: ALE-Pong-v5 for ALE/Pong-v5, c-snake for c:snake.
    Ids of modules keep their colon."""
    if env_id.startswith(C_ENV):
        env_id = env_id.replace(":", "-", 1)
    return env_id.replace("/", "-")
