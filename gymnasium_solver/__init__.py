"""gymnasium-solver: solve Gymnasium environments. One config, one command.

    import gymnasium_solver as gs

    run = gs.train("CartPole-v1:ppo", max_env_steps=50_000)
    agent, env = run.agent(), gs.make_env(run)
    action = agent.act(obs)
    gs.evaluate(run, episodes=100)

docs/python.md is the guide.

The names below are imported when they are first used: importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

from gymnasium_solver.version import __version__

if TYPE_CHECKING:
    from gymnasium_solver.algos import register_algorithm
    from gymnasium_solver.api import evaluate, list_runs, make_env, open_run, resume, train
    from gymnasium_solver.envs.wrappers import register_wrapper
    from gymnasium_solver.experiments.search.run import sweep
    from gymnasium_solver.experiments.train_many import experiment
    from gymnasium_solver.nets.registered import register_head, register_network
    from gymnasium_solver.plugins import register_env
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.serve.notebook import ui
    from gymnasium_solver.training.agents import load_agent as load
    from gymnasium_solver.training.observer import EvalResult, Observer, register_observer
    from gymnasium_solver.training.prepare import load_config

__all__ = [
    "EvalResult",
    "Observer",
    "Run",
    "__version__",
    "evaluate",
    "experiment",
    "list_runs",
    "load",
    "load_config",
    "make_env",
    "open_run",
    "register_algorithm",
    "register_env",
    "register_head",
    "register_network",
    "register_observer",
    "register_wrapper",
    "resume",
    "sweep",
    "train",
    "ui",
]

_HOMES = {
    "EvalResult": "gymnasium_solver.training.observer:EvalResult",
    "Observer": "gymnasium_solver.training.observer:Observer",
    "Run": "gymnasium_solver.runs.run:Run",
    "evaluate": "gymnasium_solver.api:evaluate",
    "experiment": "gymnasium_solver.experiments.train_many:experiment",
    "list_runs": "gymnasium_solver.api:list_runs",
    "load": "gymnasium_solver.training.agents:load_agent",
    "load_config": "gymnasium_solver.training.prepare:load_config",
    "make_env": "gymnasium_solver.api:make_env",
    "open_run": "gymnasium_solver.api:open_run",
    "register_algorithm": "gymnasium_solver.algos:register_algorithm",
    "register_env": "gymnasium_solver.plugins:register_env",
    "register_head": "gymnasium_solver.nets.registered:register_head",
    "register_network": "gymnasium_solver.nets.registered:register_network",
    "register_observer": "gymnasium_solver.training.observer:register_observer",
    "register_wrapper": "gymnasium_solver.envs.wrappers:register_wrapper",
    "resume": "gymnasium_solver.api:resume",
    "sweep": "gymnasium_solver.experiments.search.run:sweep",
    "train": "gymnasium_solver.api:train",
    "ui": "gymnasium_solver.serve.notebook:ui",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    try:
        value = globals()[name] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        message = import_module("gymnasium_solver.errors").missing_training(error)
        if message is None:
            raise
        raise ModuleNotFoundError(f"gymnasium_solver.{name}: {message}", name=error.name) from None
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
