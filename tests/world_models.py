"""What the tests of TD-MPC2 and DreamerV3 share."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config
from tests.acting import collecting

GAMMA = 0.8  # of the probes
BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"hidden_dims": [32]}, "hidden_dims: {} does not have it, set"),
    ({"block": "simba"}, "block: {} does not have it"),
    ({"norm": "rms"}, "norm: {} does not have it"),
    ({"n_step": 3}, "n_step"),
    ({"prioritized": True}, "prioritized: {} does not have it"),
    ({"combined_replay": True}, "combined_replay: {} does not have it"),
    ({"her": True}, "her: {} does not have it"),
    ({"replay_on_gpu": True}, "remove replay_on_gpu"),
    ({"buffer_size": 2}, "buffer_size 2 holds 2 rows"),
    ({"model_size": "2"}, "model_size"),
]
"""Fields that no world model takes, with what is said; {} is the algorithm."""


def assert_refused(build: Callable[..., Any], *given: Any, message: str, **fields: Any) -> None:
    """In one line that has `message`."""
    with pytest.raises(ConfigError) as caught:
        build(*given, **fields)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


class NoHostReads(TorchDispatchMode):
    """Fails where a CUDA graph could not be captured: a number is read on the host, or a shape
    depends on data."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        assert not name.startswith(("_local_scalar_dense", "nonzero", "masked_select")), name
        return func(*args, **kwargs or {})


# -- probes -----------------------------------------------------------------------------------


def probed(probe: str, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """An agent, and `n_steps` random steps of a probe."""
    agent, collector = collecting(build_config({"env_id": f"Probe/{probe}-v0", **settings}))
    agent.policy.is_random = True
    rollout = collector.collect(0, None, settings["n_steps"])
    collector.close()
    agent.policy.is_random = False
    return agent, rollout


def learn(
    agent: Any, n_updates: int, rate: float = 5e-3, last: float = 0.1, ent_coef: float = 1e-4
) -> None:
    """Updates on what is remembered, at a learning rate that ends at the share `last`."""
    for lr in np.linspace(rate, last * rate, 8):
        numbers = {"policy_lr": float(lr), "ent_coef": ent_coef}
        metrics = agent.program(agent.samples(n_updates // 8, {}), numbers)
        assert all(np.isfinite(float(value)) for value in metrics.values())


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]
