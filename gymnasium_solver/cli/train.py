"""`gsolve train <env>[:<variant>] [flags]`: train, or resume a run. Any config field is a flag.

    run_command    which of the forms of the command is meant
    train          the folder, the console as observer, training.loop.train

Several runs are in many.py, the output in console.py.
"""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver import processes
from gymnasium_solver.cli.flags import NO_VALUE, Args, UsageError, Work, verb
from gymnasium_solver.cli.logs import check_level
from gymnasium_solver.errors import DivergedError, GsolveError
from gymnasium_solver.runs.checkpoint import LAST, list_checkpoints
from gymnasium_solver.runs.resolve import ResolvedCheckpoint, resolve_checkpoint
from gymnasium_solver.runs.run import is_run, runs_root
from gymnasium_solver.runs.words import runs_dir_flag
from gymnasium_solver.training.activity import PREEMPTED, Terminated, sigterm_raises

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.training.observer import Observer


# What `wandb agent` sets when it starts the program of a sweep, once per trial.
AGENT_PARAMS, AGENT_RUN = "WANDB_SWEEP_PARAM_PATH", "WANDB_RUN_ID"
MANY_FLAGS = ("seeds", "jobs", "stack", "ablations", "experiment", "backend", "detach")


def saves_at_sigterm(work: Work) -> Work:
    """Decorate a verb that trains: its exit code is 75 after SIGTERM, which saves; the same command
    continues it."""

    @wraps(work)
    def run(args: Args) -> int | None:
        with sigterm_raises():
            try:
                return work(args)
            except Terminated:
                print(f"gsolve {args.verb}: terminated by SIGTERM", file=sys.stderr)
                return PREEMPTED

    return run


@verb(
    """
usage: gsolve train <env>[:<variant>] [flags]
       gsolve train path/to/config.yaml[:variant] [flags]
       gsolve train CONFIG... --seeds 5 [--jobs N] [flags]
       gsolve train --resume RUN|EXPERIMENT [flags]

Train an agent, by PPO unless a variant or --algo-id says otherwise. For an environment without a
config the algorithm is chosen by what random actions show (docs/solve.md). Any field of the config
is a flag, in kebab or snake case, with the same meaning as in the YAML. gsolve train
CartPole-v1:ppo --help shows every field with its value there.

--FIELD VALUE...         set a field: --policy-lr 1e-3, --hidden-dims 64 64,
                         --policy-lr "{start: 1e-3, end: 0}", --early-stop-on-eval-threshold null
--no-FIELD               false, as a bare --FIELD is true: --normalize-obs
--resume RUN             continue where a run stopped; further flags change its config.
                         RUN/@best goes back to that checkpoint and removes the later ones
--dev                    do not train: check in seconds that this config learns at all (finite
                         gradients that reach every parameter, weights that change, losses that
                         fall on the same data)
--render                 open a window that shows the newest policy at play in up to 16 envs, in a
                         process of its own
--run-name NAME          name of the run's folder in it (default: config, time and four digits)
--run-dir DIR            the run's folder, anywhere
--if-exists WHAT         if that folder exists: error (default), resume (continue it, or say that
                         it is finished), restart (archive it), new (add a number)
--seeds 5                train five seeds; --seeds 1,2,7 or --seeds 3..7 chooses them. Several
                         configs, CartPole-v1:ppo,dqn and 'CartPole-v1:*' are trained together
--jobs N                 runs at a time (default: one per CPU)
--stack                  train the seeds of a config as one program, or as N with --jobs N
                         (default: one per CPU with at least four seeds each; on a GPU up to five
                         with at least two). For small networks (docs/experiments.md)
--ablations FILE         also train each config with each overlay in this YAML list
--experiment NAME        name of the experiment, to continue it by the same command
--track NAME,NAME        follow the run with csv, tensorboard, wandb or trackio, each in a process
                         of its own (gsolve track); none: not even $GSOLVE_TRACK; repeatable
--wandb                  the same as --track wandb
--detach                 run in the background; gsolve jobs lists, shows and cancels
--no-keys                do not read keys; else on a terminal: c checkpoint, e evaluate,
                         p pause, q save and stop, h help
-q, --quiet              print only the start, the result and the path
--config-id NAME         internal, as are the following: names of the reference; repeatable
--epoch @best|@last      internal
--list-envs [FILTER]     internal
--wandb-sweep            internal
--env-kwargs --set --overlay --trust --runs-dir --backend --resources --sbatch --log-level

fields that are mostly given as flags:
  --init-from-run RUN/@best
                           start from the weights of another run
  --profile                print where the time went, and write trace.json, which opens
                           in a browser (ui.perfetto.dev); --profile kineto also
                           the operators of torch, in kineto.json

examples:
  gsolve train CartPole-v1:ppo
  gsolve train CartPole-v1:ppo --max-env-steps 50_000 --seed 7 -q
  gsolve train LunarLander-v3:ppo --n-envs 16 --policy-lr lin_0.001 --hidden-dims 128 128
  gsolve train FrozenLake-v1:ppo --env-kwargs is_slippery=false
  gsolve train --resume @last --max-env-steps 1e6
  gsolve train CartPole-v1:ppo CartPole-v1:dqn --seeds 5 --jobs 2

gsolve list shows all configs.
""",
    target_help=True,
)
@saves_at_sigterm
def run_command(args: Args) -> int:
    """Find out which of the forms of the command is meant, and do that."""
    if processes.is_follower():
        return follow_first_process()
    args.track += ["wandb"] * args.wandb
    if args.list_envs is not None:
        from gymnasium_solver.cli.configs import list_configs

        return list_configs(["--", args.list_envs] if args.list_envs != NO_VALUE else [])
    if args.resume is not None:
        from gymnasium_solver.cli import many

        if (experiment := many.find_experiment(args)) is not None:
            return many.run_experiment(experiment, args)
        return resume(args, args.config_name())
    if processes.n_launched() > 1 and (is_many(args) or args.dev):
        raise UsageError(
            "torchrun starts the processes of one training: remove what starts several, or --dev"
        )
    if is_many(args) and not args.help:
        from gymnasium_solver.cli import many

        return many.train_many(args)
    if args.epoch is not None:
        raise UsageError("--epoch requires --resume, for example: gsolve train --resume RUN/@best")
    target = args.needed_config()
    check_is_no_run(target, args.runs_dir)
    if args.help:
        from gymnasium_solver.cli.configs import print_field_help

        print_field_help(target, args.load_config(target))
        return 0
    add_agent_parameters(args)
    config = args.load_config(target, chooses=True)
    return check_that_it_learns(config) if args.dev else train(args, debuggable(args, config))


def follow_first_process() -> int:
    """Take part in the training of the first process that torchrun started, which alone prints."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the first process may have ended already
    from gymnasium_solver.training import loop

    try:
        loop.follow()
    except (processes.ProcessLostError, DivergedError):  # the first process says why
        return 1
    except GsolveError as error:
        error.args = (f"process {os.environ['RANK']}: {error}",)
        raise
    return 0


def is_many(args: Args) -> bool:
    """Whether this command line means an experiment."""
    is_asked = any(getattr(args, name) not in (None, False) for name in MANY_FLAGS)
    has_pattern = any(set("*?,") & set(word) and not os.path.exists(word) for word in args.words)
    return is_asked or len(args.words) > 1 or has_pattern


def train(args: Args, config: "Config") -> int:
    """Train a config in a new run, or in the one that --run-name and --if-exists mean."""
    from gymnasium_solver.fast.execution import compile_ahead

    compile_ahead(config)
    from gymnasium_solver.training import loop
    from gymnasium_solver.training.run_place import choose_place

    if args.quiet or config.quiet:
        import gymnasium

        gymnasium.logger.min_level = gymnasium.logger.ERROR  # the rest is for `gsolve doctor env`
    place = choose_place(
        args.root(),
        config,
        name=args.run_name,
        folder=args.run_dir,
        if_exists=args.if_exists,
        trust=args.trust,
    )
    if place.is_finished:
        print(f"{place.path} is finished; gsolve run shows its result")
        return 0
    if place.note:
        print(place.note)
    start: Callable[..., object] = partial(loop.train, config, name=place.name)
    if place.is_resume:
        start = partial(loop.resume, str(place.path.absolute()), trust=args.trust)
    return watched(args, config, start, place.root)


def watched(
    args: Args, config: "Config", start: Callable[..., object], root: Path, **told: Any
) -> int:
    """Train, followed by the console and by what else was asked for; `told`: to the console."""
    from gymnasium_solver.cli.console import TrainConsole

    with TrainConsole(**console_options(args, config), **told) as console:
        observers = [console, *followers(args, config)]
        start(runs_root=root, command=args.command, observers=observers)
    return console.exit_code


def resume(args: Args, target: str | None) -> int:
    """Continue a run; the fields given now replace those of its saved config."""
    from gymnasium_solver.cli.configs import shown
    from gymnasium_solver.training import loop
    from gymnasium_solver.training.prepare import load_config

    ref = str(args.resume)
    if args.epoch is not None:  # another spelling of a checkpoint
        if args.epoch not in ("@best", "@last"):
            raise UsageError(
                f"--epoch {args.epoch}: checkpoints are named by env steps, for example: "
                f"gsolve train --resume {ref}/<env_steps>. gsolve run {ref} lists them"
            )
        ref = f"{ref}/{args.epoch}"
    if target is not None:
        raise UsageError(
            f"--resume {ref} continues with that run's own config: remove '{target}', or remove "
            "--resume to start a new run (--init-from-run loads only the weights)"
        )
    root = args.root()
    found = resolve_checkpoint(ref, root, default=LAST)
    path = str(found.run.config_path)
    saved, changed = load_config(path, trust=args.trust), args.load_config(path)
    changes = [
        f"{name}: {shown(getattr(saved, name))} → {shown(getattr(changed, name))}"
        for name in type(changed).model_fields
        if getattr(saved, name, None) != getattr(changed, name)
    ]
    start = partial(loop.resume, ref, overrides=args.overrides(), trust=args.trust)
    return watched(args, changed, start, root, notes=changes, warnings=going_back(found))


def check_that_it_learns(config: "Config") -> int:
    """Print what the checks of a tiny training found; 1 if something is wrong."""
    from gymnasium_solver.training.config_tests import dev_checks

    checks = dev_checks(config)
    for check in checks:
        print(f"✓ {check.what}" if check.problem is None else f"✗ {check.problem}")
    n_wrong = sum(check.problem is not None for check in checks)
    print(f"{n_wrong} of {len(checks)} checks failed" if n_wrong else "this config learns")
    return 1 if n_wrong else 0


def check_is_no_run(target: str, runs_dir: str | None) -> None:
    """Reject a run given in place of a config, and say how to continue or repeat it."""
    root = runs_root(runs_dir)
    run = target.partition("/")[0] if target.startswith("@") else target
    if not (run.startswith("@") or is_run(root / run) or is_run(Path(run))):
        return
    config = (Path(run) if "/" in run else root / run) / "config.yaml"
    raise UsageError(
        f"'{target}' is a run, not a config.\n"
        f"  to continue it:   gsolve train --resume {target}{runs_dir_flag(runs_dir)}\n"
        f"  to repeat it:     gsolve train {shlex.quote(str(config))}"
    )


def add_agent_parameters(args: Args) -> None:
    """Under `wandb agent`: add the parameters of its trial; flags that are given win. The run gets
    the agent's id, so that a trial that is started again continues."""
    path, run_id = os.environ.get(AGENT_PARAMS), os.environ.get(AGENT_RUN)
    if path is None:
        if args.wandb_sweep:
            raise UsageError(
                f"--wandb-sweep: ${AGENT_PARAMS} is not set; `wandb agent SWEEP` starts trials "
                "with it"
            )
        return
    from gymnasium_solver.experiments.search.files import given_params

    params = given_params(Path(path)).items()
    settings = [f"{name}={json.dumps(value)}" for name, value in params if name not in args.fields]
    args.set = [*settings, *args.set]
    if run_id and args.run_name is None and args.run_dir is None:
        args.run_name, args.if_exists = run_id, args.if_exists or "resume"


def debuggable(args: Args, config: "Config") -> "Config":
    """Under a debugger, one environment in this process, unless the command line says otherwise:
    breakpoints in an environment of another process would never be hit."""
    if sys.gettrace() is None or {"n_envs", "vectorization_mode"} & set(args.overrides()):
        return config
    print("a debugger is attached: one environment, in this process")
    return config.replace(n_envs=1, vectorization_mode="sync", eval_async=False, collectors=None)


def console_options(args: Args, config: "Config") -> dict[str, Any]:
    """The flags about output, as arguments of TrainConsole."""
    return {
        "quiet": args.quiet or config.quiet,
        "runs_dir": args.runs_dir,
        "keys": not args.no_keys,
        "log_level": check_level(args.log_level or "info"),
    }


def followers(args: Args, config: "Config") -> "list[Observer]":
    """What starts processes next to the training: the window of `--render`, and the trackers of
    `--track` or of $GSOLVE_TRACK, which the runs of an experiment inherit."""
    found: list[Observer] = []
    if args.render:
        from gymnasium_solver.media.stage import has_display
        from gymnasium_solver.training.videos import LiveWindow, check_render

        check_render(config, has_display())
        found.append(LiveWindow())
    if text := ",".join(args.track) or os.environ.get("GSOLVE_TRACK", ""):
        from gymnasium_solver.share.trackers.follow import Launcher, check_installed, read_names

        check_installed(names := read_names(text))  # before hours of training
        found += [Launcher(names)] if names else []
    return found


def going_back(found: ResolvedCheckpoint) -> list[str]:
    """A warning about what a resume from an older checkpoint removes."""
    env_steps = int(found.path.resolve().name)
    later = [c for c in list_checkpoints(found.run.checkpoints_dir) if c.env_steps > env_steps]
    if not later:
        return []
    names = ", ".join(f"{c.env_steps}{' @best' * c.is_best}{' @last' * c.is_last}" for c in later)
    return [
        f"going back to {env_steps:,} env steps; everything later is removed: "
        f"checkpoints {names}, and their metrics and evaluations"
    ]
