"""The process behind `eval_async`: evaluates checkpoints of one run while training continues.

    python -m gymnasium_solver.training.eval_worker RUN_FOLDER

Each line on stdin is a job, {"kind": "val", "path": ..., "env_steps": ..., "epoch": ...}; each line
on stdout is its result, the fields of an EvalResult, or {"error": text}. It ends with its stdin.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.agents import agent_from_checkpoint
from gymnasium_solver.training.evaluator import Evaluator
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.threads import limited_threads


def main() -> None:
    run = Run(Path(sys.argv[1]))
    config = load_config(str(run.config_path), trust=True)  # the run that started this process
    env = env_from_config(config, 1)
    env.close()
    evaluator = Evaluator(config.replace(device="cpu"), env.spec, Activity())
    with limited_threads(1):
        for line in sys.stdin:
            try:
                answer = _evaluate(evaluator, json.loads(line))
            except GsolveError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


def _evaluate(evaluator: Evaluator, job: dict[str, Any]) -> dict[str, Any]:
    policy = agent_from_checkpoint(evaluator.config, load_checkpoint(Path(job["path"]))).policy
    clocks = {"env_steps": job["env_steps"], "epoch": job["epoch"]}
    if job["kind"] == "val":
        return evaluator.validate(policy, **clocks).to_dict()
    return evaluator.test(
        policy, greedy=evaluator.config.eval_deterministic, clock=job["env_steps"], **clocks
    ).to_dict()


if __name__ == "__main__":
    main()
