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
    from gymnasium_solver.experiments.auto.solve import solve
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
    "solve",
    "sweep",
    "train",
    "ui",
]

_MODULES = {
    "algos": ("register_algorithm",),
    "api": ("evaluate", "list_runs", "make_env", "open_run", "resume", "train"),
    "envs.wrappers": ("register_wrapper",),
    "experiments.train_many": ("experiment",),
    "experiments.auto.solve": ("solve",),
    "experiments.search.run": ("sweep",),
    "nets.registered": ("register_head", "register_network"),
    "plugins": ("register_env",),
    "runs.run": ("Run",),
    "serve.notebook": ("ui",),
    "training.agents": ("load_agent",),
    "training.observer": ("EvalResult", "Observer", "register_observer"),
    "training.prepare": ("load_config",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_HOMES["load"] = _HOMES.pop("load_agent")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    attribute = "load_agent" if name == "load" else name
    try:
        module = import_module(f"{__name__}.{_HOMES[name]}")
        value = globals()[name] = getattr(module, attribute)
    except ModuleNotFoundError as error:
        message = import_module("gymnasium_solver.errors").missing_training(error)
        if message is None:
            raise
        raise ModuleNotFoundError(f"gymnasium_solver.{name}: {message}", name=error.name) from None
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
