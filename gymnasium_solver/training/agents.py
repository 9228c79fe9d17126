"""Builds agents from configs and checkpoints, and selects their device."""

from pathlib import Path

import torch

from gymnasium_solver.algos import algo_class
from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config, LearnerConfig
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.treatment import Treatment, treatment_of
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.network import is_cnn
from gymnasium_solver.policies.reader import ObsReader
from gymnasium_solver.runs.checkpoint import LoadedCheckpoint, load_checkpoint
from gymnasium_solver.runs.query import get_config
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run, runs_root
from gymnasium_solver.runs.summary import Fields
from gymnasium_solver.spaces.json_form import space_from_json
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.training.fits import check_agent, check_spaces, fitting
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.seeds import derive
from gymnasium_solver.training.threads import largest_product

# Multiplications in the largest matrix product of an update above which a CUDA GPU pays off. With
# SAC's default (256^3) an H200 runs 2.8 times as many steps as its host CPU. With PPO on 8 envs of
# CartPole (256 x 64^2) it is 1.5 times, which does not make up for CUDA's start-up in a short run.
WORK_FOR_A_GPU = 256**3 // 2


def pick_device(name: str, is_large: bool = False) -> str:
    """`auto`: a CUDA GPU for large updates, if available; otherwise the CPU."""
    if name == "auto":
        return "cuda" if is_large and torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} was requested, but torch finds no CUDA GPU; use cpu.")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: mps was requested, but torch finds no Apple GPU; use cpu.")
    return name


def build_agent(config: Config, observation_space: Space, action_space: Space) -> Agent:
    """A newly initialised agent of the algorithm `config.algo_id`."""
    is_large = isinstance(config, LearnerConfig) and (
        is_cnn(config, observation_space) or largest_product(config) >= WORK_FOR_A_GPU
    )
    return algo_class(config.algo_id)(
        config,
        observation_space,
        action_space,
        seed=derive(config.seed or 0, "agent"),
        device=pick_device(config.device, is_large),
    )


def agent_from_checkpoint(config: Config, checkpoint: LoadedCheckpoint) -> Agent:
    path, extra = checkpoint.path, checkpoint.state.get("agent")
    with fitting(path):
        assert isinstance(extra, dict), "state.json has no agent"
        saved = [space_from_json(extra[name]) for name in ("observation_space", "action_space")]
        check_spaces(saved, checkpoint.tensors.get("model", {}), path)
        agent = build_agent(config, *saved)
        check_agent(agent, checkpoint.tensors, extra, path)
        agent.load_state(checkpoint.tensors, extra)
    return agent


def load_agent(
    ref: str | Run,
    runs_dir: str | Path | None = None,
    device: str = "cpu",
    *,
    trust: bool = False,
) -> Agent:
    """Load a trained agent: load_agent("@last/@best").act(obs).

    `act` takes observations as the environment gives them, and applies those of the run's wrappers
    that are functions of the observation. No environment is built, except for runs of version
    0.1.0 with wrappers, whose folder lacks the spaces. `trust`: also import code that the config
    of a run made elsewhere names.
    """
    found = resolve_checkpoint(ref, runs_root(runs_dir))
    config = load_config(str(found.run.config_path), trust=trust).replace(device=device)
    agent = agent_from_checkpoint(config, load_checkpoint(found.path))
    meta = Fields(found.run.meta(), found.run.meta_path)
    agent.policy.episode_limit = meta.count("max_episode_steps")
    agent.policy.loaded_from = found.path
    agent.policy.reader = ObsReader(
        run_treatment(found.run, config, agent.observation_space), agent.action_space, found.run.id
    )
    return agent


def run_treatment(run: Run, config: Config, trained_on: Space | None = None) -> Treatment:
    """The treatment of observations in a run; `trained_on` is the space of its policy."""
    saved = run.meta().get("treatment")
    if saved is not None:
        with fitting(run.meta_path):
            return Treatment.from_json(saved)
    if trained_on is not None and not config.env_wrappers and not config.spec:
        return Treatment(trained_on)
    env = env_from_config(config, 1)
    try:
        return treatment_of(env, config)
    finally:
        env.close()


def transfer_weights(agent: Agent, ref: str, runs_dir: Path) -> str:
    """Initialise from the weights of another run, as far as they match; return a summary."""
    found = resolve_checkpoint(ref, runs_dir)
    model = load_checkpoint(found.path).tensors.get("model", {})
    if isinstance(agent.net, ActorCritics):
        model = agent.net.renamed(model)
    skipped = agent.load_matching_weights(model)
    own = agent.net.state_dict()
    taken = [name for name in own if name not in skipped]
    if all(own[name].ndim < 2 for name in taken):  # biases or counts alone transfer nothing
        raise RunError(
            f"init_from_run: nothing in {found.run.id}/{found.label} matches this policy by name "
            "and shape; use a run with the same spaces and hidden_dims."
        )
    note = f"started from {found.run.id}/{found.label}: {len(taken)} of {len(own)} tensors loaded"
    left = {
        "left at initial values": [name for name in skipped if name in own],
        "not used": [name for name in skipped if name not in own],
    }
    note += "".join(f"; {what}: {', '.join(names)}" for what, names in left.items() if names)
    there, here = get_config(found.run).get("activation"), getattr(agent.config, "activation", None)
    if there is not None and here is not None and there != here:
        note += f"; warning: they were trained with activation: {there}, here it is {here}"
    return note
