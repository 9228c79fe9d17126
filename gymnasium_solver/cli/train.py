"""`gsolve train <env>[:<variant>] [flags]`: train, or resume a run. Any config field is a flag.

What a command line means is in train_flags.py, several runs in many.py, the output in console.py.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from gymnasium_solver.cli.field_flags import field_verb, load_target, overrides_of, target_of
from gymnasium_solver.cli.flags import NO_VALUE, Args, UsageError, root_of
from gymnasium_solver.cli.train_flags import HELP, HIDDEN

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config


@field_verb("train", HELP, HIDDEN)
def train_verb(args: Args) -> int:
    return unless_terminated("train", lambda: run_command(args))


def unless_terminated(verb: str, work: Callable[[], int]) -> int:
    """The exit code of the work; 75 after SIGTERM, which saves: the same command continues it."""
    from gymnasium_solver.training.activity import PREEMPTED, Terminated, sigterm_raises

    with sigterm_raises():
        try:
            return work()
        except Terminated:
            print(f"gsolve {verb}: terminated by SIGTERM", file=sys.stderr)
            return PREEMPTED


def run_command(args: Args) -> int:
    """Find out which of the forms of the command is meant, and do that."""
    from gymnasium_solver.cli import many, train_flags

    if args.list_envs is not None:
        from gymnasium_solver.cli.configs import list_configs

        return list_configs(["--", args.list_envs] if args.list_envs != NO_VALUE else [])
    if args.resume is not None and (experiment := many.find_experiment(args)) is not None:
        return many.run_experiment(experiment, args)
    if many.is_many(args) and not args.help and args.resume is None:
        return many.train_many(args)
    target = target_of(args)
    if args.help and target is None:
        print(HELP)
        return 0
    if args.resume is not None:
        return resume(args, target)
    if args.epoch is not None:
        raise UsageError("--epoch requires --resume, for example: gsolve train --resume RUN/@best")
    if target is None:
        print(f"{HELP}\n\ngsolve train: no target given", file=sys.stderr)
        return 2
    train_flags.check_is_no_run(target, args.runs_dir)
    if not args.help:
        train_flags.add_agent_parameters(args)
    config = load_target(args, target)
    if args.help:
        from gymnasium_solver.cli.configs import print_field_help

        print_field_help(target, config)
        return 0
    if args.dev:
        return check_that_it_learns(config)
    return train(args, train_flags.debuggable(args, config))


def train(args: Args, config: "Config") -> int:
    """Train a config in a new run, or in the one that --run-name and --if-exists mean."""
    from gymnasium_solver.fast.execution import compile_ahead

    compile_ahead(config)
    from gymnasium_solver.cli.console import TrainConsole
    from gymnasium_solver.cli.train_flags import console_options, followers
    from gymnasium_solver.training import loop
    from gymnasium_solver.training.run_place import choose_place

    place = choose_place(
        root_of(args),
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
    with TrainConsole(**console_options(args, config)) as console:
        observers = [console, *followers(args, config)]
        if place.is_resume:
            loop.resume(
                str(place.path.absolute()),
                runs_root=place.root,
                command=args.command,
                observers=observers,
                trust=args.trust,
            )
        else:
            loop.train(
                config,
                runs_root=place.root,
                command=args.command,
                observers=observers,
                name=place.name,
            )
    return console.exit_code


def resume(args: Args, target: str | None) -> int:
    """Continue a run; the fields given now replace those of its saved config."""
    from gymnasium_solver.cli import train_flags
    from gymnasium_solver.cli.console import TrainConsole
    from gymnasium_solver.runs.checkpoint import LAST
    from gymnasium_solver.runs.resolve import resolve_checkpoint
    from gymnasium_solver.training import loop
    from gymnasium_solver.training.prepare import load_config

    ref = train_flags.resume_ref(args)
    if target is not None:
        raise UsageError(
            f"--resume {ref} continues with that run's own config: remove '{target}', or remove "
            "--resume to start a new run (--init-from-run loads only the weights)"
        )
    root = root_of(args)
    found = resolve_checkpoint(ref, root, default=LAST)
    path = str(found.run.config_path)
    saved, changed = load_config(path, trust=args.trust), load_target(args, path)
    with TrainConsole(
        **train_flags.console_options(args, changed),
        notes=train_flags.changes(saved, changed),
        warnings=train_flags.going_back(found),
    ) as console:
        loop.resume(
            ref,
            runs_root=root,
            overrides=overrides_of(args),
            command=args.command,
            observers=[console, *train_flags.followers(args, changed)],
            trust=args.trust,
        )
    return console.exit_code


def check_that_it_learns(config: "Config") -> int:
    """Print what the checks of a tiny training found; 1 if something is wrong."""
    from gymnasium_solver.training.config_tests import dev_checks

    checks = dev_checks(config)
    for check in checks:
        print(f"✓ {check.what}" if check.problem is None else f"✗ {check.problem}")
    n_wrong = sum(check.problem is not None for check in checks)
    print(f"{n_wrong} of {len(checks)} checks failed" if n_wrong else "this config learns")
    return 1 if n_wrong else 0
