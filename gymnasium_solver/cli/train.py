"""`gsolve train <env>[:<variant>] [flags]`: train, or resume a run. Any config field is a flag."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    OPTIONAL,
    FieldArgs,
    UsageError,
    load_target,
    overrides_of,
    parse_fields,
    target_of,
)

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.runs.resolve import ResolvedCheckpoint
    from gymnasium_solver.training.observer import Observer

OPTIONS = {
    "help": NONE,
    "quiet": NONE,
    "set": ONE,
    "overlay": MANY,
    "env_kwargs": MANY,
    "runs_dir": ONE,
    "log_level": ONE,
    "no_keys": NONE,
    "render": NONE,
    "resume": ONE,
    "dev": NONE,
    "run_name": ONE,
    "run_dir": ONE,
    "if_exists": ONE,
    "trust": NONE,
    "seeds": ONE,
    "jobs": ONE,
    "stack": NONE,
    "ablations": ONE,
    "experiment": ONE,
    "track": ONE,
    "backend": ONE,
    "resources": ONE,
    "sbatch": ONE,
    "detach": NONE,
    # Flag names of the system that users migrate from.
    "override": ONE,
    "config_id": ONE,
    "epoch": ONE,
    "wandb_sweep": NONE,
    "list_envs": OPTIONAL,
}

HELP = """\
usage: gsolve train <env>[:<variant>] [flags]
       gsolve train path/to/config.yaml[:variant] [flags]
       gsolve train CONFIG... --seeds 5 [--jobs N] [flags]
       gsolve train --resume RUN|EXPERIMENT [flags]

Train an agent, by PPO unless a variant or --algo-id says otherwise. Any field of the config is a
flag, in kebab or snake case, with the same meaning as in the YAML. gsolve train CartPole-v1:ppo
--help shows every field with its value there.

flags:
  --FIELD VALUE...         set a field: --policy-lr 1e-3, --hidden-dims 64 64,
                           --policy-lr "{start: 1e-3, end: 0}", --early-stop-on-eval-threshold null
  --FIELD, --no-FIELD      true and false, where the field takes them: --normalize-obs
  --env-kwargs KEY=VALUE   arguments of the environment, several at once
  -s, --set KEY=VALUE      fill ${KEY} in the config, or set a field; repeatable
  --overlay NAME...        lay named sets of fields over the config, such as quick or wide
  --resume RUN             continue where a run stopped; further flags change its config.
                           RUN/@best goes back to that checkpoint and removes the later ones
  --dev                    do not train: check in seconds that this config learns at all (finite
                           gradients that reach every parameter, weights that change, losses that
                           fall on the same data)
  --init-from-run RUN/@best
                           start from the weights of another run
  --profile                print where the time went, and write trace.json, which opens
                           in a browser (ui.perfetto.dev)
  --render                 open a window that shows the newest policy at play in up to 16 envs, in a
                           process of its own
  --trust                  import the code that the config of a run made elsewhere names
  --runs-dir DIR           folder of all runs (default: $GSOLVE_RUNS or ./runs)
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
                           of its own (gsolve track)
  --backend NAME           local (default), ray, slurm, dstack or modal
  --resources "cpus=4 memory=8 gpus=1 hours=2"
                           what each run gets on a cluster, instead of the estimate
  --sbatch "partition=gpu account=x"
                           further options of sbatch
  --detach                 run in the background; gsolve jobs lists, shows and cancels
  --log-level LEVEL        show messages from debug, info (default), warning or error on
  --no-keys                do not read keys; else on a terminal: c checkpoint, e evaluate,
                           p pause, q save and stop, h help
  -q, --quiet              print only the start, the result and the path
  -h, --help               show this help; after a target, all of its fields

examples:
  gsolve train CartPole-v1:ppo
  gsolve train CartPole-v1:ppo --max-env-steps 50_000 --seed 7 -q
  gsolve train LunarLander-v3:ppo --n-envs 16 --policy-lr lin_0.001 --hidden-dims 128 128
  gsolve train FrozenLake-v1:ppo --env-kwargs is_slippery=false
  gsolve train --resume @last --max-env-steps 1e6
  gsolve train CartPole-v1:ppo CartPole-v1:dqn --seeds 5 --jobs 2

gsolve list shows all configs."""


def main(argv: Sequence[str]) -> int:
    """Additional exit code: 75 after SIGTERM, if the run can be resumed."""
    from gymnasium_solver.training.signals import PREEMPTED, Terminated, sigterm_raises

    with sigterm_raises():
        try:
            return run_command(argv)
        except Terminated:
            print("gsolve train: terminated by SIGTERM", file=sys.stderr)
            return PREEMPTED


def run_command(argv: Sequence[str]) -> int:
    args = parse_fields(argv, OPTIONS)
    if args.has("list_envs"):
        from gymnasium_solver.cli.list import print_configs

        return print_configs(args.last("list_envs"))
    from gymnasium_solver.cli.many import is_many, train_many

    command = ["gsolve", "train", *argv]
    if args.has("resume") and (experiment := find_experiment(args)) is not None:
        return experiment
    if is_many(args) and not args.has("help") and not args.has("resume"):
        return train_many(args, command, OPTIONS)
    target = target_of(args)
    if args.has("help") and target is None:
        print(HELP)
        return 0
    if args.has("resume"):
        return resume(args, target, ["gsolve", "train", *argv])
    if args.has("epoch"):
        raise UsageError("--epoch requires --resume, for example: gsolve train --resume RUN/@best")
    if target is None:
        print(f"{HELP}\n\ngsolve train: no target given", file=sys.stderr)
        return 2
    check_is_no_run(target, args.last("runs_dir"))
    if not args.has("help"):
        from gymnasium_solver.cli.wandb_agent import with_agent

        args = with_agent(args)
    config = load_target(args, target, OPTIONS)
    if args.has("help"):
        from gymnasium_solver.cli.fieldhelp import print_field_help

        print_field_help(target, config)
        return 0
    if args.has("dev"):
        return dev(config)
    return train(args, debuggable(args, config), ["gsolve", "train", *argv])


def dev(config: "Config") -> int:
    """Print what the checks of a tiny training found; 1 if something is wrong."""
    from gymnasium_solver.training.dev import dev_checks

    checks = dev_checks(config)
    for check in checks:
        print(f"✓ {check.what}" if check.problem is None else f"✗ {check.problem}")
    n_wrong = sum(check.problem is not None for check in checks)
    print(f"{n_wrong} of {len(checks)} checks failed" if n_wrong else "this config learns")
    return 1 if n_wrong else 0


def debuggable(args: FieldArgs, config: "Config") -> "Config":
    """Under a debugger, one environment in this process, unless the command line says otherwise:
    breakpoints in an environment of another process would never be hit."""
    if sys.gettrace() is None or {"n_envs", "vectorization_mode"} & set(overrides_of(args)):
        return config
    print("a debugger is attached: one environment, in this process")
    return config.replace(n_envs=1, vectorization_mode="sync", eval_async=False, collectors=None)


def find_experiment(args: FieldArgs) -> int | None:
    """Continue the experiment that --resume names; None if it names a run."""
    from gymnasium_solver.experiments.experiment import FOLDER, find, load
    from gymnasium_solver.runs.run import is_run, runs_root

    root, ref = runs_root(args.last("runs_dir")), args.last("resume") or ""
    if ref.startswith("@") or is_run(root / ref) or not (root / FOLDER).is_dir():
        found = find(ref, root) if "/" in ref else None
    else:
        found = find(ref, root)
    if found is None:
        return None
    refused = [f"--{name}" for name in ("seeds", "ablations", "experiment") if args.has(name)]
    if args.fields or args.positionals or refused:
        word = next(iter([*args.spelled.values(), *args.positionals, *refused]))
        raise UsageError(f"{word}: an experiment is continued as it was started; remove it")
    from gymnasium_solver.cli.many import run_experiment

    return run_experiment(load(found), args)


def train(args: FieldArgs, config: "Config", command: list[str]) -> int:
    from gymnasium_solver.cli.console import TrainConsole
    from gymnasium_solver.cli.named_run import choose_place
    from gymnasium_solver.training import loop

    place = choose_place(args, config)
    if place.is_finished:
        print(f"{place.root / str(place.name)} is finished; gsolve run shows its result")
        return 0
    if place.note:
        print(place.note)
    with TrainConsole(**console_options(args, config)) as console:
        if place.is_resume:
            ref = str(place.root.absolute() / str(place.name))
            loop.resume(
                ref,
                runs_root=place.root,
                command=command,
                observers=[console, *followers(args, config)],
                trust=args.has("trust"),
            )
        else:
            loop.train(
                config,
                runs_root=place.root,
                command=command,
                observers=[console, *followers(args, config)],
                name=place.name,
            )
    return console.exit_code


def resume(args: FieldArgs, target: str | None, command: list[str]) -> int:
    """Continue a run; the fields given now replace those of its saved config."""
    ref = resume_ref(args)
    if target is not None:
        raise UsageError(
            f"--resume {ref} continues with that run's own config: remove '{target}', or remove "
            "--resume to start a new run (--init-from-run loads only the weights)"
        )
    from gymnasium_solver.cli.console import TrainConsole
    from gymnasium_solver.runs.checkpoint import LAST
    from gymnasium_solver.runs.resolve import resolve_checkpoint
    from gymnasium_solver.runs.run import runs_root

    root = runs_root(args.last("runs_dir"))
    found = resolve_checkpoint(ref, root, default=LAST)
    run = found.run
    trusted = FieldArgs(options={"trust": []} if args.has("trust") else {})
    saved = load_target(trusted, str(run.config_path), OPTIONS)
    changed = load_target(args, str(run.config_path), OPTIONS)
    from gymnasium_solver.training import loop

    options = console_options(args, changed)
    with TrainConsole(
        **options, notes=changes(saved, changed), warnings=going_back(found)
    ) as console:
        loop.resume(
            ref,
            runs_root=root,
            overrides=overrides_of(args),
            command=command,
            observers=[console, *followers(args, changed)],
            trust=args.has("trust"),
        )
    return console.exit_code


def followers(args: FieldArgs, config: "Config") -> "list[Observer]":
    """What starts the processes beside the training: the window of `--render`, and those of
    `--track` or of $GSOLVE_TRACK, which the runs of an experiment inherit."""
    found: list[Observer] = []
    if args.has("render"):
        from gymnasium_solver.media.stage import has_display
        from gymnasium_solver.training.render import LiveWindow, check_render

        check_render(config, has_display())
        found.append(LiveWindow())
    names = ",".join(args.options.get("track", [])) or os.environ.get("GSOLVE_TRACK", "")
    if names:
        from gymnasium_solver.share.trackers.follow import Launcher
        from gymnasium_solver.share.trackers.sink import read_names

        found.append(Launcher(read_names(names)))
    return found


def console_options(args: FieldArgs, config: "Config") -> dict[str, Any]:
    """The flags about output, as arguments of TrainConsole."""
    from gymnasium_solver.cli.logs import check_level

    return {
        "quiet": args.has("quiet") or config.quiet,
        "runs_dir": args.last("runs_dir"),
        "keys": not args.has("no_keys"),
        "log_level": check_level(args.last("log_level") or "info"),
    }


def going_back(found: "ResolvedCheckpoint") -> list[str]:
    """A warning about what a resume from an older checkpoint removes."""
    from gymnasium_solver.runs.checkpoint import list_checkpoints

    env_steps = int(found.path.resolve().name)
    later = [c for c in list_checkpoints(found.run.checkpoints_dir) if c.env_steps > env_steps]
    if not later:
        return []
    names = ", ".join(f"{c.env_steps}{' @best' * c.is_best}{' @last' * c.is_last}" for c in later)
    return [
        f"going back to {env_steps:,} env steps; everything later is removed: "
        f"checkpoints {names}, and their metrics and evaluations"
    ]


def check_is_no_run(target: str, runs_dir: str | None) -> None:
    """Reject a run given in place of a config, and say how to continue or repeat it."""
    from gymnasium_solver.runs.run import is_run, runs_root
    from gymnasium_solver.runs.words import runs_dir_flag

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


def resume_ref(args: FieldArgs) -> str:
    """RUN or RUN/CHECKPOINT; `--epoch @best` is an alternative spelling of a checkpoint."""
    ref, epoch = args.last("resume") or "", args.last("epoch")
    if epoch is None:
        return ref
    if epoch not in ("@best", "@last"):
        raise UsageError(
            f"--epoch {epoch}: checkpoints are named by env steps, for example: "
            f"gsolve train --resume {ref}/<env_steps>. gsolve run {ref} lists them"
        )
    return f"{ref}/{epoch}"


def changes(before: "Config", after: "Config") -> list[str]:
    """One line per changed field."""
    from gymnasium_solver.cli.fieldhelp import shown

    return [
        f"{name}: {shown(getattr(before, name))} → {shown(getattr(after, name))}"
        for name in type(after).model_fields
        if getattr(before, name, None) != getattr(after, name)
    ]
