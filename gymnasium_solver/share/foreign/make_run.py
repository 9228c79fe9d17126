"""A run folder from an imported model: it can be evaluated, watched, exported and trained further.

    run, unmapped = import_model(model, "CartPole-v1", root, source="model.zip")

The run has one checkpoint, at the env steps of the model. Its optimiser is new, so training further
starts a run from its weights: `gsolve train ... --init-from-run RUN`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.load import apply_overrides, config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.treatment import treatment_of
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.summary import test_score
from gymnasium_solver.share.foreign.fields import Mapped, map_fields
from gymnasium_solver.share.foreign.model import ForeignModel, our_weights
from gymnasium_solver.spaces.json_form import space_to_json
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.progress import Progress
from gymnasium_solver.training.score import score
from gymnasium_solver.training.targets import find_run


def import_model(
    model: ForeignModel,
    env_id: str,
    root: Path,
    *,
    source: str,
    name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    episodes: int | None = 100,
    command: list[str] | None = None,
) -> tuple[Run, Mapped]:
    """Write the run, then score it on held-out episodes; `episodes` None: do not score it."""
    config, mapped = model_config(model, env_id, overrides or {})
    env = env_from_config(config, 1)
    try:
        agent = build_agent(config, env.observation_space, env.action_space)
        agent.load_weights(our_weights(model, agent))
        run = _create(config, env, root, name, command, source, model)
        _save(run, agent, model.env_steps)
    finally:
        env.close()
    if episodes is not None:
        _test(run, root, episodes)
    return run, mapped


def model_config(
    model: ForeignModel, env_id: str, overrides: Mapping[str, Any]
) -> tuple[Config, Mapped]:
    mapped = map_fields(model.hyper, model.algo_id, "sb3" if model.made_by == "SB3" else "cleanrl")
    note = f"Imported from {model.made_by}."
    base = {"env_id": env_id, "algo_id": model.algo_id, "seed": 0, "description": note}
    base |= {"device": "cpu", "max_env_steps": max(model.env_steps, 1)}
    if model.convolutions:  # their dense layers are part of the network's own fields
        for name in ("hidden_dims", "activation"):
            mapped.fields.pop(name, None)
    for attempt in ({**mapped.fields, **model.fields()}, model.fields()):
        try:
            return build_config(apply_overrides(base | attempt, dict(overrides))), mapped
        except ConfigError as error:
            failed = error
    raise failed


def _create(
    config: Config,
    env: VectorEnv,
    root: Path,
    name: str | None,
    command: list[str] | None,
    source: str,
    model: ForeignModel,
) -> Run:
    own = config.reward_threshold
    threshold = env.spec.reward_threshold if own is None else own
    identity = {
        **{field: getattr(config, field) for field in ("env_id", "algo_id", "variant", "seed")},
        "reward_threshold": threshold,
        "max_env_steps": config.max_env_steps,
    }
    code = code_named(config_dict(config))
    run = Run.create(dump_config(config), identity, root, command, name, code)
    run.update_meta(
        status="finished",
        stop_reason="imported",
        stop_detail=f"{model.made_by}, {source}",
        imported={"library": model.made_by, "file": source},
        engine=env.spec.engine,
        max_episode_steps=env.spec.max_episode_steps,
        action_space=space_to_json(env.action_space),
        treatment=treatment_of(env, config).to_json(),
        env_steps=model.env_steps,
        device="cpu",
        pid=None,
    )
    return run


def _save(run: Run, agent: Agent, env_steps: int) -> None:
    tensors, extra = agent.state()
    state = {"progress": asdict(Progress(env_steps=env_steps)), "agent": extra}
    save_checkpoint(run.checkpoints_dir, env_steps, tensors, state, {}, best=True)
    run.log_event("checkpoint", env_steps=env_steps, epoch=0, reason="imported")


def _test(run: Run, root: Path, episodes: int) -> None:
    scores = score(find_run(str(run.path.resolve()), root), episodes, "test", {"greedy": True})
    result = scores.results["greedy"].to_dict()
    run.log_event("eval", stage="test", **result)
    threshold = scores.threshold
    solved = None if threshold is None else bool(result["mean"] >= threshold)
    run.update_meta(test=test_score(result), test_episodes=episodes, solved=solved)
    run.close()
