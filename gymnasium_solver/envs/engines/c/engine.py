"""Environments written in C: one file each, compiled at first use, N copies stepped in one call.

    make_vector_env("c:my_env.c", 64)       # or of a shipped file: c:snake

The file follows gsolve_env.h, and docs/c_environments.md explains it. The library is kept in the
cache of compiled programs (fast/native/build.py). A new one first plays random actions in a copy of
this process, which wrong code may crash. The state of all copies is bytes, so it is saved and
restored as it is, without a journal of actions.
"""

import ctypes
import hashlib
import os
import re
import time
from ctypes import c_char_p, c_double, c_int64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from gymnasium_solver.config.code import source_file
from gymnasium_solver.config.env_ids import C_ENV, is_c_file
from gymnasium_solver.envs.action_checks import MASK_KEY
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.suites.own import refuse_unknown
from gymnasium_solver.envs.vector import Engine, Info, RawStep, Space
from gymnasium_solver.errors import EnvError, MissingError, UnknownEnvError, Unsupported
from gymnasium_solver.fast.native.build import (
    CompiledEnvs,
    SourceError,
    can_compile,
    load_source,
    thread_pool,
)
from gymnasium_solver.suggest import did_you_mean

FOLDER = Path(__file__).parent
SHIPPED = FOLDER / "shipped"
MOST_LINES = 12  # of the compiler's message
TRIAL_STEPS, TRIAL_ENVS = 1000, 3
TRIAL_SECONDS = 10  # after half of them no further step begins
THREADS, MOST_THREADS = "threads", 16  # a key of env_kwargs


class List(ctypes.Structure):
    """As in gsolve_vector.h."""

    _fields_ = [("n", c_int64), ("items", c_void_p)]

    def numbers(self, kind: type[c_double] | type[c_int64] = c_double) -> list[Any]:
        return list((kind * self.n).from_address(self.items))

    def texts(self) -> list[str]:
        found = (c_char_p * self.n).from_address(self.items)
        return [text.decode(errors="replace") for text in found if text]


class ObsPart(ctypes.Structure):
    """As in gsolve_vector.h."""

    _fields_ = [("name", c_char_p), ("size", c_int64)]


class Facts(ctypes.Structure):
    """What a file defines; as in gsolve_vector.h."""

    _fields_ = [
        *((name, c_int64) for name in (
            "is_bytes", "n_actions", "action_size", "max_steps", "frame_width", "frame_height",
            "fps", "has_mask", "state_bytes",
        )),
        *((name, c_double) for name in ("reward_low", "reward_high", "solved")),
        *((name, List) for name in (
            "shape", "obs_low", "obs_high", "low", "high", "action_names", "obs_names",
            "obs_parts",
        )),
    ]  # fmt: skip

    @property
    def obs_type(self) -> Any:
        return np.uint8 if self.is_bytes else np.float32

    @property
    def parts(self) -> dict[str, int]:
        """How many numbers each part of an observation has; empty if observations are no dict."""
        given = (ObsPart * self.obs_parts.n).from_address(self.obs_parts.items)
        named = (part for part in given if part.name is not None)  # NULL without OBS_PARTS
        return {part.name.decode(errors="replace"): part.size for part in named}


MOST_PARTS = 16
ROWS = ("actions", "obs", "reward", "terminated", "truncated", "legal")


class Envs(ctypes.Structure):
    """As in gsolve_vector.h."""

    _fields_ = [
        *((name, c_int64) for name in ("n", "max_steps", "obs_size", "threads")),
        ("in_parts", c_void_p),
        *((name, c_void_p) for name in ("state", "rng", "length", "done")),
        *((name, c_void_p) for name in ("low", "high", "centre", "scale", "fresh", "fresh_obs")),
        *((name, c_void_p) for name in ROWS),
        ("parts", c_void_p * MOST_PARTS),
    ]  # fmt: skip


class Program(NamedTuple):
    """A compiled environment."""

    functions: ctypes.CDLL
    facts: Facts
    observation: Space
    action: Space


STATE = ("state", "rng", "length", "done")
"""The arrays of `Copies` from which they continue exactly."""


class Copies:
    """N copies in memory of their own. `step` writes into `rows`, which may be replaced."""

    def __init__(self, program: Program, n: int, max_steps: int, threads: int = 1) -> None:
        pool, threads = thread_pool() if threads > 1 else None, min(threads, n)
        facts, functions = program.facts, program.functions
        shape, width = tuple(facts.shape.numbers(c_int64)), facts.action_size
        self.state = np.zeros((n, facts.state_bytes), np.uint8)
        self.rng, self.length = np.zeros(n, np.uint64), np.zeros(n, np.int64)
        self.done = np.zeros(n, np.bool_)
        self._bounds = _spread(facts.low, max(width, 1)), _spread(facts.high, max(width, 1))
        self.rows = {
            "actions": np.zeros((n, width), np.float32) if width else np.zeros(n, np.int64),
            "obs": np.zeros((n, *shape), facts.obs_type),
            "reward": np.zeros(n, np.float32),
            "terminated": np.zeros(n, np.bool_),
            "truncated": np.zeros(n, np.bool_),
            "legal": np.ones((n, facts.n_actions), np.bool_),
        }
        self._places = {name: array.ctypes.data for name, array in self.rows.items()}
        self.arguments = Envs(
            n,
            max_steps,
            int(np.prod(shape, dtype=int)),
            1 if pool is None else threads,
            pool,
            *(a.ctypes.data for a in (self.state, self.rng, self.length, self.done, *self._bounds)),
            **self._places,
        )
        self._at = ctypes.addressof(self.arguments)
        self.function = functions.gsolve_step
        self._functions = functions
        self.parts = facts.parts

    def reset(self, seed: int) -> None:
        """Seed each copy; copy i keeps its stream when there are more."""
        seeds = np.random.SeedSequence(seed).generate_state(len(self.rng), np.uint64)
        self._functions.gsolve_reset(self._at, seeds.ctypes.data)

    def step(self, actions: np.ndarray) -> None:
        self.rows["actions"][...] = actions.reshape(self.rows["actions"].shape)
        self.function(self._at)

    def copied(self, *names: str) -> tuple[Any, ...]:
        """Copies of these rows."""
        return tuple(self.rows[name].copy() for name in names)

    def observe(self) -> None:
        """Observations and masks of the state as it is."""
        self._functions.gsolve_observe(self._at)

    def render(self, index: int, height: int, width: int) -> np.ndarray:
        frame = np.zeros((height, width, 3), np.uint8)
        self._functions.gsolve_render(self._at, index, frame.ctypes.data)
        return frame

    needs_python = False

    def begin(self, units: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Take actions in these units, until `release`."""
        if units is not None:
            self._units = [np.ascontiguousarray(part, np.float64).reshape(-1) for part in units]
            self.arguments.centre, self.arguments.scale = (a.ctypes.data for a in self._units)

    def prepare(self) -> None:
        """Nothing: a step needs nothing from Python."""

    def release(self) -> None:
        """Step into arrays of their own again."""
        self.arguments.centre = self.arguments.scale = None
        for name, place in self._places.items():
            setattr(self.arguments, name, place)
        self.arguments.parts = (c_void_p * MOST_PARTS)()


class CEngine(Engine):
    """N copies of an environment written in C."""

    def __init__(self, request: EnvRequest) -> None:
        env_id = request.env_id
        refuse_unknown(request, (THREADS,))
        threads = request.env_kwargs.get(THREADS, 1)
        if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
            raise EnvError(
                f"{env_id}: {THREADS} is {threads!r}, expected a whole number from 1 to "
                f"{MOST_THREADS}."
            )
        self.program = program = load_program(env_id)
        facts = program.facts
        limit = request.max_episode_steps or facts.max_steps
        solved = None if np.isnan(facts.solved) else float(facts.solved)
        spec = EnvSpec(env_id, "c", "written in C", limit, solved, "c")
        super().__init__(request.n_envs, program.observation, program.action, spec)
        self._copies = Copies(program, request.n_envs, limit, threads)
        text = b"".join(file.read_bytes() for file in _sources(_file_of(env_id)))
        self._source = np.frombuffer(hashlib.sha256(text).digest(), np.uint8)

    def _reset(self, seed: int) -> tuple[Any, Info]:
        self._copies.reset(seed)
        return self._seen()

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        self._copies.step(actions)
        obs, info = self._seen()
        return obs, *self._copies.copied("reward", "terminated", "truncated"), info

    def _seen(self) -> tuple[Any, Info]:
        obs, legal = self._copies.copied("obs", "legal")
        if parts := self._copies.parts:
            split = np.split(obs, np.cumsum(list(parts.values()))[:-1], axis=1)
            obs = dict(zip(parts, split, strict=True))
        return obs, {MASK_KEY: legal} if self.program.facts.has_mask else {}

    @property
    def compiled(self) -> CompiledEnvs | None:
        return self._copies

    @property
    def described(self) -> dict[str, Any]:
        facts, found = self.program.facts, dict[str, Any](render_fps=self.program.facts.fps)
        if labels := facts.action_names.texts():
            found["action_space"] = {"labels": labels}
            if facts.action_size:
                space: Any = self.action_space
                found["action_space"]["range"] = [float(space.low.min()), float(space.high.max())]
        if names := facts.obs_names.texts():
            found["observation_space"] = {"components": [{"name": name} for name in names]}
        ends = [facts.reward_low, facts.reward_high]
        if np.isfinite(ends).all():
            found["rewards"] = {"range": ends}
        return found

    def saved(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self._copies, name).copy() for name in STATE}
        return {**arrays, "source": self._source}

    def _restored(self, saved: dict[str, np.ndarray]) -> tuple[Any, Info]:
        if not np.array_equal(saved.get("source", ()), self._source):
            raise EnvError(
                f"{self.spec.env_id} is not the file that was saved with the run, or a file that "
                "it includes has changed."
            )
        for name in STATE:
            own, found = getattr(self._copies, name), saved[name]
            if found.shape != own.shape or found.dtype != own.dtype:
                raise EnvError(
                    f"{self.spec.env_id}: its saved {name} is {found.dtype} {list(found.shape)}, "
                    f"expected {own.dtype} {list(own.shape)}."
                )
            own[...] = found
        self._copies.observe()
        return self._seen()

    def render(self, env_index: int = 0) -> np.ndarray | None:
        facts = self.program.facts
        if not facts.frame_width:
            return None
        return self._copies.render(env_index, facts.frame_height, facts.frame_width)


# -- from an id to a program ----------------------------------------------------------------------


def shipped_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.c"))


def load_program(env_id: str) -> Program:
    """Compile an environment, unless it is in the cache."""
    file = _file_of(env_id)
    if not can_compile():
        raise MissingError(
            f"{env_id} is written in C, and there is no C compiler: install gcc or clang (Debian: "
            "apt install gcc), or name one in CC."
        )
    text = f'#include "{file}"\n#include "gsolve_vector.h"\n'
    try:
        library = load_source(text, [FOLDER, file.parent], _fault, TRIAL_SECONDS)
    except SourceError as error:
        raise EnvError(_compiler_says(env_id, str(error))) from None
    except Unsupported as error:
        raise EnvError(
            f"{env_id}: in {TRIAL_STEPS} random steps of {TRIAL_ENVS} copies, tried in another "
            f"process, {error}."
        ) from None
    return _program(library, env_id)


def _file_of(env_id: str) -> Path:
    name = env_id.removeprefix(C_ENV)
    if is_c_file(env_id):
        file = source_file(name)
        if file.suffix != ".c" or not file.is_file():
            raise UnknownEnvError(f"{env_id}: there is no C file {name}.")
        return file.resolve()
    file = SHIPPED / f"{name}.c"
    if not file.is_file():
        known = shipped_names()
        hint = did_you_mean(name, known) or f"There are {', '.join(known)}."
        raise UnknownEnvError(
            f"Unknown environment {env_id!r}. {hint} A file of your own is c:{name}.c."
        )
    return file


def _sources(file: Path) -> list[Path]:
    """A file and those beside it that it includes, each once."""
    found = [file]
    for source in found:  # which grows
        for name in re.findall(rb'^\s*#\s*include\s*"([^"]+)"', source.read_bytes(), re.MULTILINE):
            beside = (source.parent / os.fsdecode(name)).resolve()
            if beside.is_file() and beside not in found:
                found.append(beside)
    return found


def _compiler_says(env_id: str, message: str) -> str:
    """The message without the lines that say how the file was included."""
    included = re.compile(r"(In file included from|\s+from) .*[:,]$|.*<stdin>.*")
    lines = [line for line in message.splitlines() if not included.match(line)]
    more = [f"... ({len(lines) - MOST_LINES} more lines)"] if len(lines) > MOST_LINES else []
    return "\n".join([f"{env_id}: the C compiler rejects it:", *lines[:MOST_LINES], *more])


def _program(library: ctypes.CDLL, env_id: str) -> Program:
    for name in ("gsolve_reset", "gsolve_step", "gsolve_observe", "gsolve_render"):
        getattr(library, name).restype = None
    library.gsolve_step.restype = c_int64
    library.gsolve_reset.argtypes = [c_void_p, c_void_p]
    library.gsolve_step.argtypes = library.gsolve_observe.argtypes = [c_void_p]
    library.gsolve_render.argtypes = [c_void_p, c_int64, c_void_p]
    facts = Facts.in_dll(library, "gsolve_about")
    shape = tuple(facts.shape.numbers(c_int64))
    sizes = {"OBS_SHAPE": min(shape), "MAX_STEPS": facts.max_steps}
    sizes["ACTION_SIZE" if facts.action_size else "N_ACTIONS"] = (
        facts.action_size or facts.n_actions
    )
    for name, size in sizes.items():
        if size < 1:
            raise EnvError(f"{env_id}: {name} is {size}, expected at least 1.")
    ends = (_filled(env_id, name, end, shape) for name, end in
            (("OBS_LOW", facts.obs_low), ("OBS_HIGH", facts.obs_high)))  # fmt: skip
    low, high = (end.astype(facts.obs_type) for end in ends)
    whole = gymnasium.spaces.Box(low, high, shape, facts.obs_type)
    observation = _in_parts(env_id, whole, facts) if facts.parts else whole
    n_actions, n_numbers = facts.n_actions + facts.action_size, int(np.prod(shape))
    named = {"ACTION_NAMES": (facts.action_names, n_actions)}
    named["OBS_NAMES"] = facts.obs_names, n_numbers
    for name, (names, size) in named.items():
        if (n := len(names.texts())) not in (0, size):
            raise EnvError(f"{env_id}: {name} has {n} names, expected {size}.")
    if not facts.action_size:
        return Program(library, facts, observation, gymnasium.spaces.Discrete(facts.n_actions))
    shape = (facts.action_size,)
    low, high = (_filled(env_id, name, end, shape).astype(np.float32) for name, end in
                 (("ACTION_LOW", facts.low), ("ACTION_HIGH", facts.high)))  # fmt: skip
    return Program(library, facts, observation, gymnasium.spaces.Box(low, high, shape, np.float32))


def _in_parts(env_id: str, whole: gymnasium.spaces.Box, facts: Facts) -> gymnasium.spaces.Dict:
    parts = facts.parts
    if len(parts) < facts.obs_parts.n or "" in parts or min(parts.values()) < 1:
        raise EnvError(
            f"{env_id}: OBS_PARTS needs parts of at least one number, with different names."
        )
    if whole.shape != (sum(parts.values()),):
        raise EnvError(
            f"{env_id}: the sizes in OBS_PARTS add up to {sum(parts.values())}, and OBS_SHAPE is "
            f"{', '.join(map(str, whole.shape))}."
        )
    if facts.obs_names.texts():
        raise EnvError(f"{env_id}: OBS_NAMES and OBS_PARTS exclude each other; remove one of them.")
    found, start = dict[str, Space](), 0
    for name, size in parts.items():
        low, high = (end[start : start + size] for end in (whole.low, whole.high))
        found[name] = gymnasium.spaces.Box(low, high, (size,), facts.obs_type)
        start += size
    return gymnasium.spaces.Dict(found)


def _filled(env_id: str, name: str, given: List, shape: tuple[int, ...]) -> np.ndarray:
    """The bounds of each number."""
    size = int(np.prod(shape))
    if given.n not in (1, size):
        raise EnvError(
            f"{env_id}: {name} has {given.n} numbers, expected 1, or one for each of {size}."
        )
    return _spread(given, size).reshape(shape)


def _spread(given: List, size: int) -> np.ndarray:
    found = np.array(given.numbers(), np.float64)
    return np.repeat(found, size) if len(found) == 1 else found


# -- the trial of a new program -------------------------------------------------------------------


FENCE = 1 << 16  # bytes on either side of an array
OUTSIDE = {
    "obs": "obs[{at}], but OBS_SHAPE has {size} numbers",
    "legal": "legal[{at}], but N_ACTIONS is {size}",
    "state": "byte {at} of a State of {size} bytes",
    "frame": "canvas->rgb[{at}], but a frame has {size} bytes",
}
"""The error for writing outside an array that an environment is given."""


class Fenced:
    """A copy of an array, between bytes that nothing may change."""

    def __init__(self, name: str, array: np.ndarray, rng: np.random.Generator) -> None:
        self._all = rng.integers(256, size=array.nbytes + 2 * FENCE, dtype=np.uint8)
        own = self._all[FENCE : FENCE + array.nbytes]
        self.name, self.array = name, own.view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self._before = self._all.copy()

    def fault(self) -> str:
        """The error if bytes before or after the array have changed; "" if not."""
        changed = np.flatnonzero(self._all != self._before) - FENCE
        outside = [*changed[changed >= self.array.nbytes][:1], *changed[changed < 0][-1:]]
        if not outside:
            return ""
        at = int(outside[0]) // self.array.itemsize
        place = OUTSIDE[self.name].format(at=at, size=self.array.size)
        return f"it writes {place}. Look for an index outside an array"


class FencedCopy(Copies):
    """One copy, whose arrays are fenced: behind each of them there is no other copy."""

    def __init__(self, program: Program, rng: np.random.Generator) -> None:
        super().__init__(program, 1, program.facts.max_steps)
        arrays = {"state": self.state, **{name: self.rows[name] for name in ("obs", "legal")}}
        self.fenced = [Fenced(name, array, rng) for name, array in arrays.items()]
        for one in self.fenced:
            setattr(self.arguments, one.name, one.array.ctypes.data)
        self.rows["legal"] = self.fenced[-1].array

    def draw(self, frame: Fenced) -> None:
        self._functions.gsolve_render(self._at, 0, frame.array.ctypes.data)


def _fault(library: ctypes.CDLL) -> str:
    """What is wrong with a program that plays random actions; "" for nothing. Wrong code may crash
    this process, a copy of the real one."""
    try:
        program = _program(library, "")
    except EnvError:  # the parent of this process reports it
        return ""
    facts, rng = program.facts, np.random.default_rng(0)
    copies = [FencedCopy(program, rng) for _ in range(TRIAL_ENVS)]
    for i, copy in enumerate(copies):
        copy.reset(i)
    end = time.monotonic() + TRIAL_SECONDS / 2  # a slow one plays fewer steps
    for copy in copies * TRIAL_STEPS:
        if time.monotonic() > end:
            break
        if facts.action_size:
            copy.step(rng.standard_normal((1, facts.action_size), np.float32))
        else:
            legal = copy.rows["legal"]
            copy.step((rng.random(legal.shape) * legal).argmax(axis=1))
    fenced = [one for copy in copies for one in copy.fenced]
    if facts.frame_width:
        empty = np.zeros((facts.frame_height, facts.frame_width, 3), np.uint8)
        fenced.append(Fenced("frame", empty, rng))
        copies[0].draw(fenced[-1])
    return next(filter(None, (one.fault() for one in fenced)), "")
