"""Run folders as training leaves them, made in milliseconds."""

from pathlib import Path
from typing import Any

from gymnasium_solver.experiments import auto
from gymnasium_solver.experiments.experiment import Experiment, create
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.files import dump_json
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import load_config


def made_run(
    root: Path,
    name: str,
    *,
    seed: int = 0,
    lr: float = 0.001,
    score: float = 480.0,
    rows: int = 20,
    status: str = "finished",
    env_id: str = "CartPole-v1",
    note: Any = None,
) -> Run:
    config = f"env_id: {env_id}\nalgo_id: ppo\nvariant: ppo\nseed: {seed}\npolicy_lr: {lr}\n"
    identity = {
        "env_id": env_id, "algo_id": "ppo", "variant": "ppo", "seed": seed,
        "reward_threshold": 475.0, "max_env_steps": 1000 * rows,
        "changed": {"policy_lr": [0.003, lr]},
    }  # fmt: skip
    with Run.create(config, identity, root, name=name, command=["gsolve", "train"]) as run:
        for i in range(1, rows + 1):
            log_row(run, i, score * i / rows)
            if i % 4 == 0:
                log_eval(run, i, score * i / rows)
        alert = {"name": "entropy_collapse", "text": "entropy 0.01 nats", "env_steps": 4000}
        run.log_event("alert", **alert, meaning="It stopped exploring.", advice="ent_coef: 0.01")
        run.log_text("epoch 1\nepoch 2")
        for env_steps in (500 * rows, 1000 * rows):
            save_checkpoint(run.checkpoints_dir, env_steps, {}, {}, {"score": score}, best=True)
        test = {"mean": score, "stderr": 1.5, "episodes": 100, "greedy": True}
        run.log_event("eval", stage="test", env_steps=1000 * rows, epoch=rows, **test)
        run.update_meta(
            status=status, stop_reason="max_env_steps", solved=score >= 475.0, test=test,
            best={"score": score, "env_steps": 1000 * rows, "epoch": rows},
            env_steps=1000 * rows, epoch=rows, episodes=10 * rows, wall_s=0.5 * rows,
        )  # fmt: skip
    return run


def log_row(run: Run, epoch: int, value: float) -> None:
    clock = {"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 0.5 * epoch}
    run.log_metrics(clock | {"train/roll/ep_rew/mean": value, "train/opt/loss/value": 1.0 / epoch})


def log_eval(run: Run, epoch: int, value: float) -> None:
    clock = {"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 0.5 * epoch}
    run.log_metrics(clock | {"val/roll/ep_rew/mean": value, "val/roll/ep_rew/std": 10.0})
    run.log_event("eval", stage="val", env_steps=1000 * epoch, epoch=epoch, mean=value, episodes=10)


def made_solve(root: Path, name: str = "solved") -> Experiment:
    """The folder that `gsolve solve` leaves, with one run."""
    made = create([("dqn", load_config("CartPole-v1:dqn"))], [1], root, name=name)
    run = made_run(root, made.members[0].run, seed=1)
    race = {n: {"scores": [90.0, 120.0], "wall_s": 2.0} for n in ("dqn", "ppo_discrete")}
    text = "solved: 480 [477, 483] in 100 held-out episodes"
    state = {
        "env_id": "CartPole-v1", "budget": {"env_steps": 50_000, "minutes": None},
        "probe": {"env_id": "CartPole-v1", "horizon": 500, "random_mean": 22.0, "hidden": None},
        "candidates": {"dqn": {}, "ppo_discrete": {}}, "race": race,
        "lines": [["probe", "Box(4) -> Discrete(2)"], ["choice", "DQN; contrast PPO"],
                  ["race", "dqn goes on"], ["check", "still rising"], ["verdict", text]],
        "winner": {"run": run.id, "name": "dqn"}, "checks": {"early": None},
        "verdict": {"kind": "solved", "mean": 480.0, "text": text, "run": run.id},
    }  # fmt: skip
    (made.path / auto.FILE).write_bytes(dump_json(state))
    return made
