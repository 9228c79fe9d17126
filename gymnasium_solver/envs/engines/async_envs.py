"""Single environments of Gymnasium, each in a process of its own.

Gymnasium's AsyncVectorEnv with what it lacks: a limit of time for each answer, and errors that name
the environment and keep its traceback. (Its own errors are made again in this process from their
class and text, which fails, or hangs, for exceptions with a constructor of their own.)
"""

import multiprocessing
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from gymnasium_solver.envs.engines.single_envs import Guard
from gymnasium_solver.envs.env_bugs import env_bug
from gymnasium_solver.errors import EnvBugError, EnvError

REAPED_WITHIN_S = 2.0


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore SIGINT in processes that are started inside. Ctrl-C reaches every process of a
    terminal, but environments must live until the run has saved itself. Signal handlers that
    libraries set inside are restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in former.items():
            if handler is not None:  # None: set by no Python code
                signal.signal(number, handler)


class AsyncEnvs(AsyncVectorEnv):
    """Processes with one adapted env (single_envs.py) each."""

    def __init__(
        self, make: Callable[[], gymnasium.Env], n_envs: int, env_id: str, timeout_s: float | None
    ) -> None:
        self._env_id, self._timeout_s = env_id, timeout_s
        self._is_broken = False
        first = Guard(make(), env_id, 0)
        spaces = first.observation_space, first.action_space
        first.close()
        makers = [partial(_guarded, make, env_id, i, spaces) for i in range(n_envs)]
        with deaf_to_ctrl_c():
            # copy=False: the buffer is copied once, by the engine, while it is cast.
            super().__init__(makers, autoreset_mode=AutoresetMode.NEXT_STEP, copy=False)

    def _check_spaces(self) -> None:
        """Whether the copies have the spaces of the first one; also waits for their
        constructors."""
        wanted = "same", self.single_observation_space, self.single_action_space

        def send() -> None:
            for pipe in self.parent_pipes:
                pipe.send(("_check_spaces", wanted))

        def wait(timeout: float | None) -> list[Any]:
            if not self._poll_pipe_envs(timeout):
                raise multiprocessing.TimeoutError
            return [pipe.recv()[0] for pipe in self.parent_pipes]

        for i, are_same in enumerate(self._ask("the constructor", send, wait)):
            if not all(are_same):
                raise EnvError(f"{self._env_id}: its copies differ in their spaces: env {i}")

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._ask(
            "reset()", lambda: self.reset_async(seed=seed, options=options), self.reset_wait
        )

    def step(self, actions: Any) -> Any:
        return self._ask("step()", lambda: self.step_async(actions), self.step_wait)

    def _ask(self, call: str, send: Callable[[], None], wait: Callable[..., Any]) -> Any:
        try:
            send()
            return wait(timeout=self._timeout_s)
        except EnvError:  # reported by the processes, which wait for the next call
            raise
        except multiprocessing.TimeoutError as error:
            self._is_broken = True
            late = [str(i) for i, pipe in enumerate(self.parent_pipes) if not pipe.poll(0)]
            raise EnvError(
                f"{self._env_id}: env {', '.join(late)} did not answer within "
                f"{self._timeout_s:g} s: {call} hangs or is slow. Set env_timeout_s higher, or to "
                "null for no limit."
            ) from error
        except (EOFError, ConnectionError) as error:
            self._is_broken = True
            raise self._dead(call) from error
        except Exception as error:  # in this process, which reads the answers
            self._is_broken = True
            happened = f"{self._env_id}: the answers of {call} cannot be read:"
            raise env_bug(happened, error) from error
        except BaseException:
            self._is_broken = True
            raise

    def _dead(self, call: str) -> EnvError:
        """Which process ended, and how."""
        until_s = time.perf_counter() + REAPED_WITHIN_S
        while time.perf_counter() < until_s:
            for i, process in enumerate(self.processes):
                process.join(0.01)
                if process.exitcode is not None:
                    code = process.exitcode
                    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                    return EnvError(
                        f"{self._env_id}: the process of env {i} ended {how} in {call}. To see "
                        "why, run it in this process: vectorization_mode sync."
                    )
        return EnvError(f"{self._env_id}: a process of the environments stopped answering.")

    def _raise_if_errors(self, successes: Any) -> None:
        n_errors = self.num_envs - sum(successes)
        errors = {}
        for _ in range(n_errors):
            index, _, error, trace = self.error_queue.get(timeout=self._timeout_s)
            self.parent_pipes[index].close()
            self.parent_pipes[index] = None  # type: ignore[call-overload]  # as Gymnasium does
            if not isinstance(error, EnvError):  # outside of the guard: storing an observation
                text = f"{self._env_id}: env {index} failed: {type(error).__name__}: {error}"
                error = EnvBugError(text, trace)
            errors[index] = error
        if errors:
            self._state = AsyncState.DEFAULT
            raise errors[min(errors)]

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ask each process to close its env, and kill those that do not end in time."""
        pipes = [pipe for pipe in self.parent_pipes if pipe is not None and not pipe.closed]
        limit_s = self._timeout_s if timeout is None else timeout
        if self._is_broken or terminate:  # what hangs would not answer, nor end when asked to
            limit_s = 0.0
        else:
            for pipe in pipes:
                with suppress(OSError):
                    pipe.send(("close", None))
        until_s = None if limit_s is None else time.perf_counter() + limit_s
        late = [i for i, process in enumerate(self.processes) if not _ended(process, until_s)]
        for i in late:
            self.processes[i].kill()
            self.processes[i].join()
        for pipe in pipes:
            pipe.close()
        if late and not (self._is_broken or terminate):
            warnings.warn(
                f"{self._env_id}: close() of env {', '.join(map(str, late))} did not end within "
                f"{limit_s:g} s (env_timeout_s); its process was killed.",
                stacklevel=2,
            )


def _ended(process: Any, until_s: float | None) -> bool:
    """Whether a process has ended by then."""
    process.join(None if until_s is None else max(0.0, until_s - time.perf_counter()))
    return process.exitcode is not None


def _guarded(
    make: Callable[[], gymnasium.Env], env_id: str, index: int, spaces: Any
) -> gymnasium.Env:
    try:
        return Guard(make(), env_id, index)
    except EnvError as error:
        return _Unmade(spaces, error)
    except Exception as error:
        # Outside of what Gymnasium's worker reports: reported by the first reset instead.
        return _Unmade(spaces, env_bug(f"{env_id}: the constructor of env {index} raised", error))


class _Unmade(gymnasium.Env[Any, Any]):
    """Stands for an env whose constructor raised."""

    def __init__(self, spaces: Any, error: EnvError) -> None:
        self.observation_space, self.action_space = spaces
        self._error = error

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        raise self._error
