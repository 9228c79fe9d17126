"""The vector env contract: the form in which the rest of the program sees environments.

    env = make_vector_env("CartPole-v1", n_envs=8)      # envs/make.py
    obs = env.reset(seed=1)
    step = env.step(actions)                            # drop the rows where step.is_reset

Autoreset is Gymnasium's NEXT_STEP, native to Gymnasium and EnvPool: at the step that ends an
episode `obs` is the true final observation; the next row is a reset row, whose action was ignored
and whose `obs` opens the new episode. So the value of the final observation is the value at the
next row, and bootstrapping a truncated episode needs nothing special. Reset rows do not count as
env steps.

An environment may terminate the learner's return while the episode continues (a lost life of an
Atari game): `terminated` is true there, `is_over` is not, and the next row continues from the same
observation. Episodes are counted and scored where `is_over` is true.

Observations are one array [N, ...] or a dict of named arrays (`Obs`, spaces/observations.py): the
space is an array space or a flat Dict of such. Actions are always one array [N, ...]; those of Dict
and Tuple spaces have their leaves side by side (spaces/space_types.py).

`env.action_mask` has the legal actions at the observations just returned, for environments that
provide them (action_checks.py).

`Engine` implements the contract once over what engines offer natively; an engine adds `_reset` and
`_step`. `VectorWrapper` is the base of batch wrappers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from gymnasium_solver.envs.action_checks import MaskReader, action_checker
from gymnasium_solver.envs.env_bugs import env_bug, explained
from gymnasium_solver.envs.goals import successes
from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.native.build import CompiledEnvs
from gymnasium_solver.spaces import observations
from gymnasium_solver.spaces.observations import GoalFunctions, Obs
from gymnasium_solver.spaces.space_types import Space, as_float32

RAW_REWARD = "raw_reward"
"""Info of an engine: the rewards of the environments themselves, where wrappers inside the engine
change them. Scores are made of these."""
SUCCEEDED = "episode_success"
"""Info of every engine whose environments report success: bool[N], whether the episode had it at
any step so far."""
Info = dict[str, Any]
RawStep = tuple[Obs, np.ndarray, np.ndarray, np.ndarray, Info]


class Step(NamedTuple):
    """One step of all envs. Arrays are fresh (safe to keep) and not to be written into."""

    obs: Any
    """`Obs`: (N, *shape), or such arrays by name; float32, int64 for discrete parts, uint8 images.
    Not typed as a union: the observation space says which of the two it is."""
    reward: np.ndarray  # float32[N]; 0 at reset rows
    terminated: np.ndarray
    """bool[N]: the task ended. Both flags are true where a termination falls on the time limit."""
    truncated: np.ndarray  # bool[N]: the episode was cut (time limit)
    is_reset: np.ndarray
    """bool[N]: this row only opened a new episode; its action was ignored. Never learn from it."""
    episode_return: np.ndarray
    """float64[N]: running raw return (before reward wrappers), this step included; final where
    done, 0 at reset rows."""
    episode_length: np.ndarray  # int64[N]: running length, this step included; 0 at reset rows
    is_over: np.ndarray
    """bool[N]: the episode is over, its return and length are final, and a reset row follows. The
    same as terminated | truncated, but for an env that terminates within an episode."""
    info: Info  # further values from the engine, under its own names


class Totals(NamedTuple):
    """The episodes of all envs after a step; see Step."""

    is_over: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray


class VectorEnv(ABC):
    """N copies of one environment, stepped together."""

    n_envs: int
    observation_space: Space
    """Space of ONE env, with the dtype that `obs` really has: an array space, or a flat Dict."""
    action_space: Space  # space of ONE env, as a policy sees it
    spec: EnvSpec

    @property
    def action_mask(self) -> np.ndarray | None:
        """bool[N, A]: the legal actions at the last observations, of reset or step; at a final one
        at least one is legal. None before the first reset and, from then on, where the env has no
        masks. Safe to keep, like the arrays of a Step."""
        return None

    @property
    def info(self) -> Info:
        """The info that came with the last observations, of reset or step."""
        return {}

    @abstractmethod
    def reset(self, seed: int) -> Any:
        """Seed every env from `seed` and open new episodes, at any time. Same seed and actions,
        same trajectories. Returns `Obs`, as `Step.obs` is."""

    @abstractmethod
    def step(self, actions: Any) -> Step:
        """Step all envs with actions (N, *action shape). Box actions are clipped to the bounds."""

    def goal_functions(self) -> GoalFunctions:
        """Reward and end of a step as functions of goals, for hindsight replay; EnvError where the
        env has none."""
        raise EnvError(
            f"her: {self.spec.env_id} has no reward function of goals (engine {self.spec.engine}). "
            "Remove her."
        )

    def render(self, env_index: int = 0) -> np.ndarray | None:
        """One RGB frame (H, W, 3) uint8 of one env; None where the env draws nothing."""
        return None

    def close(self) -> None:  # noqa: B027
        """Free processes, threads and windows. Safe to call twice."""


Effect = Literal["none", "pure", "new_obs", "other"]


class VectorWrapper(VectorEnv):
    """Passes everything through to `env`; subclasses override what they change."""

    effect: ClassVar[Effect] = "other"
    """What it means for an agent that acts outside the trainer (envs/as_gymnasium.py). none: it
    changes neither observations nor actions (rewards, say). pure: it maps each observation, or
    masks actions, without a state, so that the agent can do it. new_obs: its observations have
    another shape than those it is given (stacks, rendered frames). other: all else, and unknown."""
    given: Mapping[str, Any] = {}  # the entry of `env_wrappers` that it was made from

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.n_envs = env.n_envs
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.spec = env.spec

    @property
    def action_mask(self) -> np.ndarray | None:
        return self.env.action_mask

    @property
    def info(self) -> Info:
        return self.env.info

    def reset(self, seed: int) -> Any:
        return self.env.reset(seed)

    def step(self, actions: Any) -> Step:
        return self.env.step(actions)

    @property
    def mapped_parts(self) -> list[str]:
        """Names of the parts of an observation that it changes, [""] for a plain one: by default
        those whose space differs."""
        before, after = map(
            observations.part_spaces, (self.env.observation_space, self.observation_space)
        )
        return [name for name, part in after.items() if part != before.get(name)]

    def goal_functions(self) -> GoalFunctions:
        for name in {observations.ACHIEVED, observations.DESIRED} & set(self.mapped_parts):
            raise EnvError(
                f"her: {type(self).__name__} changes {name}, from which {self.spec.env_id} "
                "computes its reward. Leave the goals out (key: observation), or remove her."
            )
        return self.env.goal_functions()

    def render(self, env_index: int = 0) -> np.ndarray | None:
        return self.env.render(env_index)

    def close(self) -> None:
        self.env.close()


class ObservationWrapper(VectorWrapper):
    """Shows other observations; a subclass makes them in `seen`."""

    @abstractmethod
    def seen(self, obs: Any, opened: np.ndarray) -> Any:
        """The new observations; `opened` marks the rows of new episodes."""

    def reset(self, seed: int) -> Any:
        return self.seen(self.env.reset(seed), np.ones(self.n_envs, np.bool_))

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        return step._replace(obs=self.seen(step.obs, step.is_reset))


class Engine(VectorEnv):
    """The contract over native NEXT_STEP autoreset: checks, dtypes, episode totals."""

    action_mask: np.ndarray | None = None
    info: Info = {}

    def __init__(self, n_envs: int, observation: Space, action: Space, spec: EnvSpec) -> None:
        self.n_envs = n_envs
        self._set_observation_space(observation, spec.env_id)
        self.action_space = as_float32(action)
        self.spec = spec
        self._check_actions = action_checker(self.action_space, n_envs, spec.env_id)
        self._masks = MaskReader(self.action_space, n_envs, spec.env_id)
        self._closed = False
        self._done: np.ndarray | None = None
        self._n_done = 0
        self._return, self._length = np.zeros(n_envs), np.zeros(n_envs, np.int64)
        self._succeeded: np.ndarray | None = None

    def _set_observation_space(self, space: Space, env_id: str) -> None:
        self.observation_space = observations.delivered_space(space, env_id)
        self._deliver = observations.deliverer(self.observation_space)

    @abstractmethod
    def _reset(self, seed: int) -> tuple[Obs, Info]:
        """Reseed and reset every env; fresh observations, and info."""

    @abstractmethod
    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        """Step natively: fresh arrays obs, reward, terminated, truncated (bool), and info, with
        "action_mask" where the env has masks.

        `is_reset` marks the n_reset rows that are done, whose action does not count."""

    @property
    def compiled(self) -> CompiledEnvs | None:
        """The envs as a C program that can be stepped without this class, which is given `totals`
        and `take_masks` afterwards; None: there is none. They have no info."""
        return None

    @property
    def described(self) -> dict[str, Any]:
        """What the env says of itself, as the `spec` block of a config."""
        return {}

    @property
    def totals(self) -> Totals:
        """Where the episodes stand; set after steps of `compiled`."""
        assert self._done is not None, "reset first"
        return Totals(self._done, self._return, self._length)

    @totals.setter
    def totals(self, found: Totals) -> None:
        self._done, self._return, self._length = found
        self._n_done = int(np.count_nonzero(found.is_over))

    def take_masks(self, masks: np.ndarray, lengths: np.ndarray) -> None:
        """Masks [T, N, A] after each step of `compiled`, with the lengths [T, N] of episodes."""
        for t, row in np.argwhere(~masks.any(axis=2)):
            raise EnvError(self._masks.nothing_legal(row, lengths[t, row]))
        self.action_mask = masks[-1].copy()

    def saved(self) -> dict[str, np.ndarray] | None:
        """The state of all envs as arrays, from which `restore` continues exactly, among them
        `done` [N]; None: this engine cannot save it."""
        return None

    def _restored(self, saved: dict[str, np.ndarray]) -> tuple[Obs, Info]:
        """Continue from what `saved` returned; fresh observations, and info."""
        raise NotImplementedError

    def restore(
        self, saved: dict[str, np.ndarray], returns: np.ndarray, lengths: np.ndarray
    ) -> Any:
        """Continue from what `saved` returned; returns the observations there."""
        obs, info = self._restored(saved)
        done = saved["done"].astype(np.bool_)
        totals = Totals(done, returns.astype(np.float64), lengths.astype(np.int64))
        return self._opened(obs, info, totals)

    def reset(self, seed: int) -> Any:
        if self._closed:
            raise EnvError(f"{self.spec.env_id}: reset() after close().")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise EnvError(f"{self.spec.env_id}: reset(seed) takes an int >= 0, got {seed!r}.")
        with explained(f"{self.spec.env_id}: reset() raised"):
            obs, info = self._reset(int(seed))
        n = self.n_envs
        return self._opened(obs, info, Totals(np.zeros(n, bool), np.zeros(n), np.zeros(n, int)))

    def _opened(self, obs: Obs, info: Info, totals: Totals) -> Any:
        """Go on from here; returns the observations."""
        self.totals = totals
        episodes = totals.is_over, totals.episode_length
        self.action_mask, self.info = self._masks.at_reset(info, *episodes), info
        self._succeeded = None
        return self._deliver(obs)

    def step(self, actions: Any) -> Step:
        is_reset, n_reset = self._done, self._n_done
        if is_reset is None:
            raise EnvError(f"{self.spec.env_id}: step() before reset(seed), or after close().")
        actions = self._check_actions(actions)
        try:  # sooner than `explained`
            obs, reward, terminated, truncated, info = self._step(actions, is_reset, n_reset)
        except EnvError:
            raise
        except (Exception, SystemExit) as error:
            raise env_bug(f"{self.spec.env_id}: step() raised", error) from error
        # New arrays each step, never changed once handed out.
        self._return = self._return + info.get(RAW_REWARD, reward)
        self._length = self._length + 1
        if n_reset:
            self._return[is_reset] = 0.0
            self._length[is_reset] = 0
        reported = successes(info, self.n_envs) if info else None
        if reported is not None or self._succeeded is not None:
            info = {**info, SUCCEEDED: self._success_so_far(reported, is_reset)}
        self._done = terminated | truncated
        self._n_done = int(np.count_nonzero(self._done))
        self.action_mask = self._masks.at_step(info, self._done, self._length)
        self.info = info
        return Step(
            self._deliver(obs),
            reward.astype(np.float32, copy=False),
            terminated,
            truncated,
            is_reset,
            self._return,
            self._length,
            self._done,
            info,
        )

    def _success_so_far(self, reported: np.ndarray | None, is_reset: np.ndarray) -> np.ndarray:
        """Whether each episode had a success; a robot may reach its goal and drift off again."""
        before = np.zeros(self.n_envs, np.bool_) if self._succeeded is None else self._succeeded
        now = before if reported is None else before | reported
        self._succeeded = now & ~is_reset
        return self._succeeded

    def close(self) -> None:
        self._closed = True
        self._done = None


def env_seeds(seed: int, n_envs: int) -> list[int]:
    """One seed for each env, a non-negative int32.

    Engines would give env i the seed + i, so that runs with adjacent seeds share almost every
    stream. These seeds are hashed, and env i keeps its seed when n_envs grows."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(n_envs) >> 1]
