"""A run's trained agent, and videos of it.

result = record_run(find_run("@last/@best", root), Shots(episodes=4, rows=2, columns=2))
"""

from pathlib import Path

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.media.actors import PolicyActor
from gymnasium_solver.media.record import Recorded, Shots, record
from gymnasium_solver.media.stage import open_stage
from gymnasium_solver.media.video import ffmpeg_exe
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.training.agents import agent_from_checkpoint
from gymnasium_solver.training.score import pick_seed
from gymnasium_solver.training.targets import Found
from gymnasium_solver.training.threads import limited_threads, pick_threads


def trained_agent(found: Found) -> tuple[Agent, int]:
    """The agent on the CPU, and the env steps that it was trained for."""
    if found.agent is not None:
        return found.agent, 0
    if found.checkpoint is None:
        raise ConfigError(
            f"{found.config.env_id}: a config has no trained agent. Give a run, such as @last."
        )
    checkpoint = load_checkpoint(found.checkpoint)
    agent = agent_from_checkpoint(found.config.replace(device="cpu"), checkpoint)
    return agent, checkpoint.env_steps


def title_of(found: Found, env_steps: int) -> str:
    """What is shown, in one line."""
    config = found.config
    steps = [f"{env_steps:,} env steps"] if found.checkpoint else []
    return "   ".join([config.env_id, config.variant or config.algo_id, *steps])


def record_run(
    found: Found,
    shots: Shots,
    *,
    out: Path | None = None,
    seed: int | str = "test",
    fps: float | None = None,
    greedy: bool | None = None,
) -> Recorded:
    """Record a run's checkpoint. `out`: by default a file in the run's videos/. `greedy`: by
    default as in the run's evaluations. `seed`: a number or a stage, as in an evaluation."""
    config, run = found.config, found.run
    with limited_threads(pick_threads(config)):
        agent, env_steps = trained_agent(found)
        if greedy is None:
            greedy = config.eval_deterministic
        if out is None:
            assert run is not None, "an agent without a run needs a file name"
            out = run.videos_dir / default_name(env_steps, shots, greedy)
        stage = open_stage(found, shots.n_envs, agent=agent)
        try:
            env_seed = pick_seed(config, run, env_steps, seed)
            actor = PolicyActor(agent, greedy=greedy)
            return record(
                stage, actor, env_seed, out, shots.titled(title_of(found, env_steps)), fps
            )
        finally:
            stage.close()


def default_name(env_steps: int, shots: Shots, greedy: bool) -> str:
    """WebP where there is no ffmpeg for MP4."""
    grid = f"-grid{shots.rows}x{shots.columns}" if shots.is_grid else ""
    sampled = "" if greedy else "-sampled"
    return f"{env_steps}{grid}{sampled}{'.mp4' if ffmpeg_exe() else '.webp'}"
