"""Ids of environments that were given as Python code (envs/given.py): `Python/MyEnv-v0`."""

PYTHON_ENV = "Python/"


def is_python_env(env_id: str) -> bool:
    """Whether the environment was given as Python code, so that only Python can make it again."""
    return env_id.startswith(PYTHON_ENV)
