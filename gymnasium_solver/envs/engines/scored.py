"""The environment's own reward, beneath wrappers of single environments.

Scores are those of the environment itself, whatever a wrapper does to the reward. `RawReward` lies
beneath the wrappers and adds up what the environment pays during one step of the outermost one;
`Scored`, around them, reports it as info["raw_reward"], which the engine scores by.
"""

from typing import Any, SupportsFloat

import gymnasium

from gymnasium_solver.envs.fit import reward_number
from gymnasium_solver.envs.vector import RAW_REWARD

Answer = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class RawReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds up the rewards of one env."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.total = 0.0

    def step(self, action: Any) -> Answer:
        answer = self.env.step(action)
        if isinstance(answer, tuple) and len(answer) == 5:  # anything else is reported above
            self.total += reward_number(answer[1]) or 0.0
        return answer


class Scored(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reports what `raw`, beneath, has added up."""

    def __init__(self, env: gymnasium.Env[Any, Any], raw: RawReward) -> None:
        super().__init__(env)
        self._raw = raw

    def step(self, action: Any) -> Answer:
        self._raw.total = 0.0
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, RAW_REWARD: self._raw.total}
