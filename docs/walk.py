"""The walk of architecture.md: from the command to the verdict, with the lines of the code now."""

import ast
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent / "gymnasium_solver"
MOST_FILES = 15


class Stop(NamedTuple):
    file: str
    names: tuple[str, ...]  # functions, and methods as Class.method
    text: str


WALK = (
    Stop("cli/main.py", ("main",), "finds the module of the verb and calls it."),
    Stop("cli/train.py", ("run_command", "train"),
         "splits the command line into a target and fields; the console follows as an observer."),
    Stop("training/prepare.py", ("load_config", "build_config"),
         "reads the YAML, the variant and the flags, and builds a checked `Config`."),
    Stop("training/loop.py", ("train", "_loop", "collect_and_learn"),
         "repeats an epoch: collect and learn, judge, log, save, until there is a reason to stop."),
    Stop("training/trainer.py", ("Trainer.__init__", "Trainer.save"),
         "the components of a run: environments, agent, collector, evaluator; their state is the "
         "checkpoint."),
    Stop("envs/make.py", ("make_vector_env",),
         "the only door to environments: engine, wrappers, the contract of `envs/vector.py`."),
    Stop("training/collect.py", ("Collector.collect",),
         "lets the policy act, steps the environments, and writes a `Rollout` of T rows and N "
         "environments."),
    Stop("policies/policy.py", ("Policy.sample", "ActorPolicy"),
         "observations and carry to actions, with the distribution that the loss needs later."),
    Stop("algos/learner.py", ("Learner", "Learner.add_descent"),
         "what all learners have: random streams, networks, descents, extensions, state."),
    Stop("algos/ppo.py", ("PPO.build", "PPO.update", "ppo_loss"),
         "the algorithm: advantages, minibatches, the loss."),
    Stop("algos/on_policy.py", ("build_actor_critic", "prepare"),
         "the network of the config; the rollout as a batch, with values and log-probabilities."),
    Stop("fast/descent.py", ("Descent", "Descent.__call__"),
         "minibatches through gradient and optimiser, in the fastest form."),
    Stop("fast/optimizer.py", ("FlatOptimizer.step",),
         "the step on the flat vector, by groups."),
    Stop("training/evaluate.py", ("evaluate",),
         "whole episodes on seeds of their own: validations, and the held-out test."),
    Stop("training/judge.py", ("judge_epoch", "finish", "is_solved"),
         "validations choose the checkpoint, a held-out test decides: solved or not."),
)  # fmt: skip


def walk() -> str:
    lines = []
    for i, stop in enumerate(WALK, 1):
        known = lines_of(PACKAGE / stop.file)
        places = ", ".join(f"`{name}` {known[name]}" for name in stop.names)
        lines.append(f"{i}. `{stop.file}` ({places}): {stop.text}")
    return "\n".join(lines)


def lines_of(path: Path) -> dict[str, int]:
    """The line of each function, class and method of a file."""
    found: dict[str, int] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node.lineno
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = inner.lineno
    return found
