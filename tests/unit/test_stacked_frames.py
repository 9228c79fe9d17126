"""How many frames the replay takes an image to be made of."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config


@pytest.mark.parametrize(
    ("shape", "frame_stack", "expected"),
    [
        ((3, 40, 44), None, 1),  # colours, not frames
        ((1, 40, 44), None, 1),
        ((4, 40, 44), None, 4),  # stacked by the environment
        ((4, 40, 44), 4, 4),
        ((12, 40, 44), 4, 4),  # of colour frames
        ((12, 40, 44), None, 1),
        ((3, 40, 44), 3, 3),  # gray frames
        ((40, 44, 3), None, 1),
    ],
)
def test_frames_of_an_image(shape: tuple[int, ...], frame_stack: int | None, expected: int) -> None:
    fields: dict[str, Any] = {"env_id": "X-v0", "algo_id": "dqn", "frame_stack": frame_stack}
    image = spaces.Box(0, 255, shape, np.uint8)
    both = spaces.Dict({"image": image, "speed": spaces.Box(-1, 1, (2,), np.float32)})
    for space, name in ((image, ""), (both, "image")):
        agent = build_agent(build_config({**fields, "seed": 1}), space, spaces.Discrete(2))
        assert isinstance(agent, ReplayLearner)
        assert agent.frame_stacks[name] == expected
