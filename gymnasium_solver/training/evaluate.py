"""Evaluations on exactly N whole episodes, balanced over envs, with raw returns.

    result = evaluate(policy, env, 100, greedy=True, seed=1)
    evaluator = Evaluator(config, spec, activity)            # those of a run
    evaluator.validate(policy, env_steps, epoch, Validation(20))         # selects a checkpoint
    evaluator.evaluate("test", policy, env_steps, epoch, greedy=True)    # held out

An env that has finished its share is still stepped but no longer counted, so that short episodes
are not over-represented. Normalisation statistics are frozen. The environments are reset with
`seed`: the same policy and seed give the same numbers. In a run, every evaluation has its own seed,
derived from the stage and the clock: validation and tests never share episodes, nor do two tests at
different env steps.

With `eval_async` another process (this module) evaluates checkpoints while training continues. Its
result is taken when the next evaluation is due, and training waits if it is not ready: a run does
not depend on how fast the process is, and a resume submits what was pending again.
"""

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import env_from_config, eval_env
from gymnasium_solver.envs.spec import (
    UNLIMITED_STEPS,
    EnvSpec,
    closes_between_evals,
    eval_envs,
    task_rows,
    task_sizes,
)
from gymnasium_solver.envs.vector import SUCCEEDED, VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError, EnvValueError, GsolveError
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.finite import ENV_ADVICE
from gymnasium_solver.training.observer import EvalResult, task_scores
from gymnasium_solver.training.seeds import derive, stage_seed
from gymnasium_solver.training.threads import helper_environ, limited_threads

log = logging.getLogger(__name__)

EVAL_EPISODES = 20
FEWEST_EPISODES, FEWEST_ASKED = 2, 10  # that a short training pays for: of `auto`, of a number
COMPARED = 0.25  # share of the episodes that the other actions are measured on first
MOST_EVAL_ENVS = 64
MOST_IN_NUMPY = 256  # for envs vectorised in NumPy: a step of 100 envs costs as much as one of 50
TEST_EPISODES, FEWEST_TEST_EPISODES = 100, 30
TEST_STEPS = 100_000  # if all episodes reach the time limit


def evaluate(
    policy: Policy,
    env: VectorEnv,
    episodes: int,
    *,
    greedy: bool,
    seed: int,
    env_steps: int = 0,
    epoch: int = 0,
    activity: Activity | None = None,
) -> EvalResult:
    """`activity`: receives the progress of the evaluation."""
    activity = activity or Activity()
    began_s, choose = activity.clock_s(), policy.greedy if greedy else policy.sample
    open_share = row_shares(episodes, env)
    tasks, task_of = env.spec.tasks, np.array(task_rows(len(env.spec.tasks) or 1, env.n_envs))
    which: list[int] = []
    returns: list[float] = []
    lengths: list[int] = []
    reached: list[bool] = []
    with policy.still(), own_stream(policy, seed):
        obs, carry = env.reset(seed), policy.initial_carry(env.n_envs)
        is_first = np.ones(env.n_envs, bool)
        while len(returns) < episodes:
            if activity.is_paused:
                activity.wait_while_paused()
            actions, carry, *_ = choose(obs, carry, is_first, env.action_mask)
            step = env.step(policy.to_env(actions))
            obs, is_first = step.obs, step.is_reset
            activity.eval_rows += 1
            activity.tell_evaluation()
            finished = step.is_over & (open_share > 0)
            if not finished.any():
                continue
            open_share[finished] -= 1
            _check_returns(step.episode_return[finished], env)
            which += task_of[finished].tolist()
            returns += step.episode_return[finished].tolist()
            lengths += step.episode_length[finished].tolist()
            activity.eval_episodes_done = len(returns)
            if (success := step.info.get(SUCCEEDED)) is not None:
                reached += success[finished].tolist()
    activity.end_evaluation()
    took_s = activity.clock_s() - began_s
    log.debug("%d episodes in %d envs took %.2f s", episodes, env.n_envs, took_s)
    return EvalResult.of_episodes(
        returns,
        lengths,
        greedy=greedy,
        seed=seed,
        env_steps=env_steps,
        epoch=epoch,
        success=float(np.mean(reached)) if reached else None,
        protocol=env.spec.protocol,
        tasks=task_scores(tasks, which, returns),
    )


@contextmanager
def own_stream(policy: Policy, seed: int) -> Iterator[None]:
    """Let the policy sample from a stream of its own: an evaluation must neither advance the random
    stream of training nor use its random warm-up."""
    before = policy.rng, policy.is_random
    policy.rng, policy.is_random = np.random.default_rng(seed), False
    try:
        yield
    finally:
        policy.rng, policy.is_random = before


def _check_returns(returns: np.ndarray, env: VectorEnv) -> None:
    wrong = returns[~np.isfinite(returns)]
    if len(wrong):
        raise EnvValueError(
            f"{env.spec.env_id}: the return of an episode is {wrong[0]}, so the policy has no "
            f"score. {ENV_ADVICE}."
        )


# -- how many -------------------------------------------------------------------------------


def episode_shares(episodes: int, n_envs: int) -> np.ndarray:
    """Number of episodes per env; the numbers differ by at most one."""
    return np.full(n_envs, episodes // n_envs) + (np.arange(n_envs) < episodes % n_envs)


def row_shares(episodes: int, env: VectorEnv) -> np.ndarray:
    """Number of episodes per env, balanced over the tasks as well."""
    sizes = [size for size in task_sizes(len(env.spec.tasks) or 1, env.n_envs) if size]
    of_task = zip(episode_shares(episodes, len(sizes)), sizes, strict=True)
    return np.concatenate([episode_shares(int(share), size) for share, size in of_task])


def n_eval_envs(config: Config, episodes: int) -> int:
    """Number of envs for an evaluation: as few rounds of episodes as possible, in full rounds.

    For vectorised envs, stepping 50 costs little more than stepping 10. This does not hold if each
    env is a process or an emulator (envs/spec.py)."""
    kinds = {"array": MOST_IN_NUMPY, "many": MOST_EVAL_ENVS, "as_training": config.n_envs, "one": 1}
    most = kinds[eval_envs(config.env_id, config.vectorization_mode)]
    rounds = -(-episodes // most)
    n_envs = config.n_eval_envs or -(-episodes // rounds)
    return min(episodes, max(n_envs, len(config.tasks)))


def n_test_episodes(config: Config, spec: EnvSpec) -> int:
    """Number of episodes of a held-out test, from the config and the time limit only."""
    if config.test_episodes != "auto":
        return config.test_episodes
    limit = spec.max_episode_steps or UNLIMITED_STEPS
    fits = TEST_EPISODES if limit == UNLIMITED_STEPS else TEST_STEPS // limit
    by_length = min(TEST_EPISODES, max(FEWEST_TEST_EPISODES, fits))
    return max(by_length, n_eval_episodes(config))


def n_eval_episodes(config: Config) -> int:
    """Number of episodes of an evaluation that the budget does not bound."""
    return EVAL_EPISODES if config.eval_episodes == "auto" else config.eval_episodes


def affordable(episodes: int, given: int | str, env_steps: int, length: float) -> int:
    """The number of these episodes that `env_steps` of training pay for, if each has this length.

    `given`: the value of the field; an explicit number is cut down to FEWEST_ASKED at most."""
    fewest = FEWEST_EPISODES if given == "auto" else FEWEST_ASKED
    return min(episodes, max(fewest, int(env_steps / max(1.0, length))))


def eval_seed(config: Config, stage: str, env_steps: int) -> int:
    """Seed of an evaluation in a stage ("val" or "test") at `env_steps`."""
    return derive(stage_seed(config, stage), env_steps)


# -- the evaluations of a run ---------------------------------------------------------------


@dataclass(frozen=True)
class Validation:
    """How a validation is made; a job of another process has the same fields."""

    episodes: int
    greedy: bool = True
    compares: bool = False  # whether the other actions are measured too
    usual: float | None = None
    """With a score clearly below this one the other actions are measured in any case."""


class Evaluator:
    """Builds its environments on first use; they are separate from the training environments."""

    def __init__(self, config: Config, spec: EnvSpec, activity: Activity):
        self.activity = activity
        self._envs: dict[int, VectorEnv] = {}  # by their number of rows
        self.follow(config, spec)

    def follow(self, config: Config, spec: EnvSpec) -> None:
        """Evaluate as this config says from now on."""
        self.config = config
        self.test_episodes = n_test_episodes(config, spec)

    def evaluate(
        self,
        stage: str,
        policy: Policy,
        env_steps: int,
        epoch: int,
        *,
        greedy: bool,
        episodes: int | None = None,
        clock: int | None = None,
    ) -> EvalResult:
        """Evaluate a policy of `env_steps`: its score in the stage "val" selects the best
        checkpoint, the episodes of "test" are held out. `episodes` None: as many as the config
        says. `clock`: selects the episodes, in place of `env_steps`."""
        config, is_val = self.config, stage == "val"
        if episodes is None:
            episodes = n_eval_episodes(config) if is_val else self.test_episodes
        self.activity.begin_evaluation("evaluating" if is_val else "testing", episodes)
        result = evaluate(
            policy,
            self._env(n_eval_envs(config, episodes)),
            episodes,
            greedy=greedy,
            seed=eval_seed(config, stage, env_steps if clock is None else clock),
            env_steps=env_steps,
            epoch=epoch,
            activity=self.activity,
        )
        if closes_between_evals(config.env_id):
            self.close()
        return result

    def validate(self, policy: Policy, env_steps: int, epoch: int, how: Validation) -> EvalResult:
        """The score with the given actions; where both are compared, with the better ones.

        The other actions play the first quarter of the same episodes, and all of them only where
        that looks better by more than the standard error: a comparison rarely costs more than a
        quarter of an evaluation."""

        def measure(greedy: bool, episodes: int) -> EvalResult:
            return self.evaluate("val", policy, env_steps, epoch, greedy=greedy, episodes=episodes)

        own = measure(how.greedy, how.episodes)
        is_low = how.usual is not None and own.mean < how.usual - 2 * (own.stderr or 0.0)
        if not how.compares and not is_low:
            return own
        few = min(how.episodes, max(FEWEST_EPISODES, math.ceil(COMPARED * how.episodes)))
        other = measure(not how.greedy, few)
        if few < how.episodes and _is_better(other, own):
            other = measure(not how.greedy, how.episodes)
        is_chosen = other.episodes == own.episodes and _is_better(other, own)
        better, worse = (other, own) if is_chosen else (own, other)
        return replace(better, other={**worse.score(), "length": worse.length_mean})

    def _env(self, n_envs: int) -> VectorEnv:
        """Environments of a validation or test, and those of a comparison, are kept."""
        if n_envs not in self._envs:
            while len(self._envs) > 1:
                self._envs.pop(next(iter(self._envs))).close()
            self._envs[n_envs] = eval_env(self.config, n_envs)
        return self._envs[n_envs]

    def close(self) -> None:
        while self._envs:
            self._envs.popitem()[1].close()


def _is_better(other: EvalResult, own: EvalResult) -> bool:
    """By more than the standard error: of two that are alike the present one is kept."""
    return other.mean - own.mean > math.hypot(own.stderr or 0.0, other.stderr or 0.0)


# -- eval_async -----------------------------------------------------------------------------


def check_async(config: Config) -> None:
    """ConfigError if another process cannot evaluate this config."""
    if is_python_env(config.env_id):
        raise ConfigError(
            "eval_async: the environment was given as Python code, which no other process has. "
            "Register it, or use eval_async: false"
        )


class BackgroundEvaluator:
    """One process, started with the first job; one job at a time.

    Each line on its stdin is a job, {"kind": "val", "path": ..., "env_steps": ..., "epoch": ...,
    "how": the fields of a Validation}; each line on its stdout is a result, the fields of an
    EvalResult, or {"error": text}. It ends with its stdin."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._process: subprocess.Popen[str] | None = None

    def submit(
        self, checkpoint: Path, env_steps: int, epoch: int, how: Validation, kind: str = "val"
    ) -> None:
        path = str(checkpoint.resolve())
        job = {"kind": kind, "path": path, "env_steps": env_steps, "epoch": epoch}
        job = {**job, "how": asdict(how)}
        pipe = self._started().stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(job) + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise self._died() from None

    def result(self) -> EvalResult:
        """The result of the job that was submitted last; waits for it."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EnvError(f"eval_async: the evaluation failed: {answer['error']}")
        return EvalResult.from_dict(answer)

    def close(self) -> None:
        if self._process is None:
            return
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self._run.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=helper_environ(),
                start_new_session=os.name == "posix",  # Ctrl-C is for training
            )
        return self._process

    def _died(self) -> EnvError:
        assert self._process is not None
        code = self._process.wait()
        return EnvError(
            f"eval_async: the evaluation process ended with exit code {code}; its messages are "
            "above. gsolve train --resume continues the run; --eval-async false evaluates in the "
            "training process"
        )


def evaluate_jobs(run: Run) -> None:
    """What the process of a BackgroundEvaluator does."""
    from gymnasium_solver.training.agents import agent_from_checkpoint
    from gymnasium_solver.training.prepare import load_config

    config = load_config(str(run.config_path), trust=True)  # the run that started this process
    env = env_from_config(config, 1)
    env.close()
    evaluator = Evaluator(config.replace(device="cpu"), env.spec, Activity())
    with limited_threads(1):
        for line in sys.stdin:
            job = json.loads(line)
            try:
                checkpoint = load_checkpoint(Path(job["path"]))
                policy = agent_from_checkpoint(evaluator.config, checkpoint).policy
                clock, how = (job["env_steps"], job["epoch"]), Validation(**job["how"])
                if job["kind"] == "val":
                    result = evaluator.validate(policy, *clock, how)
                else:
                    result = evaluator.evaluate(
                        "test", policy, *clock, greedy=how.greedy, episodes=how.episodes
                    )
                answer = result.to_dict()
            except GsolveError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    evaluate_jobs(Run(Path(sys.argv[1])))
