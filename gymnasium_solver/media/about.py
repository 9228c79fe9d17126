"""What an agent is and where it acts, as plain facts: Environment and Model of the inspector."""

import math
from typing import Any

import numpy as np

from gymnasium_solver.media.player import Scene
from gymnasium_solver.nets.describe import describe_network
from gymnasium_solver.tree import map_tree


def about_environment(scene: Scene) -> dict[str, Any]:
    """Facts by name, as they are shown. Those that are not known are left out."""
    config, env, meta = scene.found.config, scene.stage.env, scene.run.meta()
    spec = scene.stage.spec
    facts = {
        "id": config.env_id,
        "description": spec.description,
        "goal": spec.goal,
        "reward": spec.reward or spec.rewards.description,
        "episode": spec.episode,
        "source": spec.source,
        "engine": env.spec.engine,
        "class": type(env).__name__,
        "observations": str(env.observation_space),
        "actions": str(env.action_space),
        "action labels": ", ".join(spec.action_space.label_list()),
        "solved at": meta.get("threshold"),
        "time limit": meta.get("max_episode_steps"),
        "arguments": config.env_kwargs,
        "wrappers": [one["id"] for one in config.env_wrappers],
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def about_model(scene: Scene, obs: Any) -> dict[str, Any]:
    """Class, size and device of the network, and its layers, measured on one observation."""
    agent = scene.agent
    assert agent is not None
    config, net = scene.found.config, agent.net
    shape = agent.policy.actions.shape
    batch = map_tree(lambda part: np.asarray(part)[None], obs)
    n_parameters = sum(parameter.numel() for parameter in net.parameters())
    rows = describe_network(net, batch, math.prod(shape) if shape else 0) if n_parameters else []
    return {
        "algorithm": config.algo_id,
        "agent": type(agent).__name__,
        "network": type(net).__name__,
        "parameters": n_parameters,
        "optimiser": getattr(config, "optimizer", None),
        "trained on": scene.run.meta().get("device"),
        "here on": str(agent.device),
        "env steps": scene.env_steps,
        "layers": [row._asdict() for row in rows],
    }
