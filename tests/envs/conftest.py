"""Counting envs registered with Gymnasium, so that every engine of Gymnasium can be counted on, and
a recorder of rollouts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from gymnasium_solver.envs.journal import same_obs
from gymnasium_solver.envs.vector import Engine, Step, VectorEnv

COUNTING = "GsolveTest/Counting-v0"


class CountingEnv(gymnasium.Env[np.ndarray, int]):
    """obs = (episode index, step index) since the last seeding; the length depends on the seed."""

    observation_space: gymnasium.spaces.Space = gymnasium.spaces.Box(0.0, np.inf, (2,), np.float64)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, ends: str = "terminated", render_mode: str | None = None) -> None:
        self.ends = ends
        self.episode = self.steps = self.length = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.episode, self.length = -1, 3 + seed % 4
        self.episode += 1
        self.steps = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps >= self.length
        terminated, truncated = (
            ended and self.ends != "truncated",
            ended and self.ends != "terminated",
        )
        return self._obs(), 1.0, terminated, truncated, {"steps": self.steps}

    def _obs(self) -> np.ndarray:
        return np.array([self.episode, self.steps], np.float64)


class CountingVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """The same, vectorised; it hands out its own buffers, as an engine may."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self, num_envs: int, max_episode_steps: int = 10**6, ends: str = "terminated"
    ) -> None:
        self.num_envs, self.limit, self.ends = num_envs, max_episode_steps, ends
        self.single_observation_space = CountingEnv.observation_space
        self.single_action_space = CountingEnv.action_space
        self.lengths = 3 + np.arange(num_envs) % 4
        self.obs = np.zeros((num_envs, 2))
        self.terminated, self.truncated = np.zeros((2, num_envs), bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.obs[:] = 0
        self.terminated[:], self.truncated[:] = False, False
        return self.obs, {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        resets = self.terminated | self.truncated
        self.obs[:, 1] += 1
        ended = self.obs[:, 1] >= self.lengths
        at_limit = self.obs[:, 1] >= self.limit
        self.terminated[:] = ended & (self.ends != "truncated") & ~resets
        self.truncated[:] = ((ended & (self.ends != "terminated")) | at_limit) & ~resets
        self.obs[resets, 0] += 1
        self.obs[resets, 1] = 0
        return self.obs, (~resets).astype(float), self.terminated, self.truncated, {}


class SameStepVectorEnv(CountingVectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}


class UndeclaredVectorEnv(CountingVectorEnv):
    metadata = {}


class DriftingEnv(CountingEnv):
    """Not deterministic under its seed: it counts all episodes it ever ran."""

    episodes_ever = 0

    def _obs(self) -> np.ndarray:
        DriftingEnv.episodes_ever += 1
        return np.array([DriftingEnv.episodes_ever, self.steps], np.float64)


class TextEnv(CountingEnv):
    """Tells words among its observations, which no network here reads."""

    observation_space = gymnasium.spaces.Dict(
        {"a": gymnasium.spaces.Dict({"words": gymnasium.spaces.Text(5)})}
    )


class WordsEnv(CountingEnv):
    """Numbers, and words beside them."""

    observation_space = gymnasium.spaces.Dict(
        {"count": CountingEnv.observation_space, "words": gymnasium.spaces.Text(5)}
    )

    def _obs(self) -> Any:
        return {"count": super()._obs(), "words": "hello"}


class PartsEnv(CountingEnv):
    """The counting env, its observation in parts of every kind."""

    observation_space = gymnasium.spaces.Dict(
        {
            "count": gymnasium.spaces.Box(0, np.inf, (2,), np.float64),
            "kinds": gymnasium.spaces.Tuple(
                [gymnasium.spaces.Discrete(3, start=5), gymnasium.spaces.MultiDiscrete([2, 3])]
            ),
            "flags": gymnasium.spaces.MultiBinary(2),
        }
    )

    def _obs(self) -> Any:
        step = self.steps
        return {
            "count": super()._obs(),
            "kinds": (5 + step % 3, np.array([step % 2, step % 3])),
            "flags": np.array([step % 2, 1], np.int8),
        }


class EchoEnv(CountingEnv):
    """Actions in parts of every kind; the observation is the action last given, as one row."""

    action_space = gymnasium.spaces.Dict(
        {
            "gear": gymnasium.spaces.Discrete(3, start=1),
            "more": gymnasium.spaces.Tuple(
                [gymnasium.spaces.MultiBinary(2), gymnasium.spaces.MultiDiscrete([2, 4])]
            ),
            "steer": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
    )
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float64)
    last: Any = None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        more = action["more"]
        self.last = [action["gear"], *more[0], *more[1], *action["steer"]]
        return super().step(0)

    def _obs(self) -> np.ndarray:
        return np.zeros(7) if self.last is None else np.array(self.last, np.float64)


def _register(name: str, **entry: Any) -> None:
    if name not in gymnasium.registry:
        gymnasium.register(name, disable_env_checker=True, **entry)


_register(
    COUNTING, entry_point=CountingEnv, vector_entry_point=CountingVectorEnv, reward_threshold=5
)
_register("GsolveTest/SameStep-v0", vector_entry_point=SameStepVectorEnv)
_register("GsolveTest/Undeclared-v0", vector_entry_point=UndeclaredVectorEnv)
_register("GsolveTest/Drifting-v0", entry_point=DriftingEnv)
_register("GsolveTest/Text-v0", entry_point=TextEnv)
_register("GsolveTest/Parts-v0", entry_point=PartsEnv)
_register("GsolveTest/Words-v0", entry_point=WordsEnv)
_register("GsolveTest/Echo-v0", entry_point=EchoEnv)


class Rollout:
    """T steps of N envs, stacked: obs[t] is what the agent saw, next_obs[t] what came back."""

    def __init__(self, first_obs: Any, actions: list[np.ndarray], steps: list[Step]) -> None:
        self.steps = steps
        self.actions = np.stack(actions)
        self.next_obs: Any = _stacked([s.obs for s in steps])
        self.obs: Any = _stacked([first_obs, *(s.obs for s in steps[:-1])])
        self.reward = np.stack([s.reward for s in steps])
        self.terminated = np.stack([s.terminated for s in steps])
        self.truncated = np.stack([s.truncated for s in steps])
        self.is_reset = np.stack([s.is_reset for s in steps])
        self.returns = np.stack([s.episode_return for s in steps])
        self.lengths = np.stack([s.episode_length for s in steps])
        self.done = self.terminated | self.truncated

    def same_as(self, other: "Rollout") -> bool:
        mine, theirs = vars(self), vars(other)
        names = [name for name in mine if name not in ("steps", "actions")]
        return all(same_obs(mine[name], theirs[name]) for name in names)


def _stacked(rows: list[Any]) -> Any:
    if isinstance(rows[0], dict):
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack(rows)


Recorder = Callable[..., Rollout]


@pytest.fixture(autouse=True)
def _closes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every engine that a test makes, at its end."""
    made: list[Engine] = []
    init = Engine.__init__

    def remember(self: Engine, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(Engine, "__init__", remember)
    yield
    for engine in made:
        if hasattr(engine, "_closed"):  # its constructor came that far
            engine.close()


@pytest.fixture
def gymnasium_mujoco(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Gymnasium's own MuJoCo envs, which leave a MUJOCO_LOG.TXT with warnings where they run."""
    pytest.importorskip("mujoco")
    pytest.importorskip("imageio")
    monkeypatch.chdir(tmp_path)


def sample_actions(env: VectorEnv, n_steps: int, seed: int) -> list[np.ndarray]:
    env.action_space.seed(seed)
    return [
        np.stack([np.asarray(env.action_space.sample()) for _ in range(env.n_envs)])
        for _ in range(n_steps)
    ]


@pytest.fixture(scope="session")
def record() -> Recorder:
    """record(env, seed, n_steps, action_seed=0, actions=None) -> Rollout; the env stays open."""

    def run(
        env: VectorEnv,
        seed: int,
        n_steps: int,
        action_seed: int = 0,
        actions: list[np.ndarray] | None = None,
    ) -> Rollout:
        obs = env.reset(seed)
        chosen = actions or sample_actions(env, n_steps, action_seed)
        return Rollout(obs, chosen, [env.step(a) for a in chosen])

    return run
