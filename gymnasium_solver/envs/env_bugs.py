"""Exceptions of an environment's own code, as one line with the environment's traceback.

    with explained(f"{env_id}: reset() raised"):
        obs, info = env.reset()

The message names the environment, the exception and its place. The traceback is kept as
`error.details` without the frames of this package and of Gymnasium above it: the command line
prints it below the message, a run writes it into run.log.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium

from gymnasium_solver.errors import EnvBugError, EnvError, MissingError, TrustError
from gymnasium_solver.runs.machine import installed

LONGEST = 300
LONGEST_DETAILS = 2000
_OURS = str(Path(__file__).parents[1])
_GYMNASIUM = Path(gymnasium.__file__).parent
# What calls an environment; the environments of Gymnasium itself are in its `envs`.
_CALLERS = (
    _OURS,
    *(str(_GYMNASIUM / part) for part in ("core.py", "wrappers", "vector", "utils")),
    str(_GYMNASIUM / "envs" / "registration.py"),
    "<frozen",
)
_POOL_FILE = re.compile(r"[/\\](envpool\S+\.\w+)")
# Packages that MuJoCo 4 breaks: their module, and a version of MuJoCo that they work with.
NEEDS_MUJOCO_3 = {
    "gymnasium-robotics": ("gymnasium_robotics", "3.3.7"),
    "dm_control": ("dm_control", "3.17.0"),
}
_MISSING_ARGUMENTS = re.compile(r"__init__\(\) missing \d+ required \S+ arguments?: (.*)")
_OLD_RESET = re.compile(
    r"reset\(\) got an unexpected keyword argument '(seed|options)'|must inherit from the gymnasium"
)
OLD_GYM = (
    "This is the API of the old Gym: reset(seed, options) returns (observation, info), step() "
    "returns (observation, reward, terminated, truncated, info). Change the environment, or wrap "
    "it with Shimmy (pip install shimmy)"
)


@contextmanager
def explained(happened: str) -> Iterator[None]:
    """Around code of an environment: its exceptions as `env_bug`; errors of this program stay."""
    try:
        yield
    except (EnvError, TrustError):
        raise
    except (Exception, SystemExit) as error:
        raise env_bug(happened, error) from error


def env_bug(happened: str, error: BaseException) -> EnvError:
    """The error to raise for an exception of an environment; `happened` opens the message."""
    lacking = _pool_file(error)  # some data files are in none of EnvPool's wheels
    if lacking is not None:
        env_id = happened.partition(": ")[0]
        lacks = f"{env_id}: the installed EnvPool does not bring its data file {lacking}"
        return MissingError(f"{lacks}. Choose another environment.")
    frames = own_frames(error)
    at = frames[-1] if frames else None
    is_frozen = at is None or at.filename.startswith("<frozen")  # of Python's own import
    place = "" if at is None or is_frozen else f" ({at.filename}, line {at.lineno})"
    text = f"{happened} {one_line(error)}{place}{advice(error)}"
    if isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled):
        return MissingError(text)
    if not frames:
        return EnvBugError(text, "")
    header = "Traceback of the environment (most recent call last):\n"
    trace = "".join(traceback.format_list(frames))
    return EnvBugError(text, f"{header}{trace}{_cut(_last_lines(error), LONGEST_DETAILS)}")


def _pool_file(error: BaseException) -> str | None:
    """The file of EnvPool's that an error names and that is not there. One pass over the text,
    however long it is."""
    for word in text_of(error).split():
        head, folder, tail = word.partition("site-packages")
        found = _POOL_FILE.match(tail) if folder else None
        if found is not None and not Path(f"{head}{folder}{found[0]}").exists():
            return found[1]
    return None


def text_of(error: BaseException) -> str:
    """The text of an exception, also of one that cannot be printed."""
    try:
        return str(error)
    except Exception as other:
        return f"(its text cannot be made: {type(other).__name__})"


def _last_lines(error: BaseException) -> str:
    """The end of a traceback: the exception and its text."""
    try:
        return "".join(traceback.format_exception_only(error)).rstrip()
    except Exception:
        return f"{type(error).__name__}: {text_of(error)}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames from the first one of the environment's own code on; none if it has none."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for i, frame in enumerate(frames):
        if not frame.filename.startswith(_CALLERS):
            return frames[i:]
    return []


def one_line(error: BaseException) -> str:
    """The kind and the text of an exception, on one line."""
    text = " ".join(text_of(error)[: 10 * LONGEST].split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def mujoco_conflicts() -> dict[str, str]:
    """Installed packages that fail with the installed MuJoCo, and what to do about each."""
    mujoco = installed("mujoco")
    if mujoco is None or int(mujoco.partition(".")[0]) < 4:
        return {}
    return {
        package: f"{package} {version} fails with mujoco {mujoco}: pip install mujoco=={works}"
        for package, (_, works) in NEEDS_MUJOCO_3.items()
        if (version := installed(package)) is not None
    }


def advice(error: BaseException) -> str:
    """What is known to help against an exception; "" if nothing is."""
    if "display" in f"{type(error).__name__} {text_of(error)[:LONGEST_DETAILS]}".lower():
        return ". It needs a display: run it under xvfb-run; for pyglet set PYGLET_HEADLESS=1"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return f". If it is a package, install it: pip install {package.replace('_', '-')}"
    if found := _MISSING_ARGUMENTS.search(text_of(error)[:LONGEST_DETAILS]):
        names = re.findall(r"'(\w+)'", found[1])
        return f". Give them: --env-kwargs {' '.join(f'{name}=VALUE' for name in names)}"
    if isinstance(error, TypeError) and _OLD_RESET.search(text_of(error)[:LONGEST]):
        return f". {OLD_GYM}"
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    for package, problem in mujoco_conflicts().items():
        module = NEEDS_MUJOCO_3[package][0]
        if any(f"/{module}/" in file.replace("\\", "/") for file in files):
            return f". {problem}"
    return ""
