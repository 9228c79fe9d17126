"""`gsolve`: the entry point. Picks the verb, prints errors, sets the exit code.

Exit codes: 0 success; 1 the work itself failed; 2 the command line, config, environment or run is
wrong; 130 interrupted. Only the standard library is imported here, so that `gsolve --help` is
instant.
"""

import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from gymnasium_solver.errors import (
    DivergedError,
    GsolveError,
    TrustError,
    WriteError,
    details_of,
    missing_training,
)
from gymnasium_solver.printable import printable, printable_lines
from gymnasium_solver.version import __version__

OBJECTS_BEFORE_GARBAGE = 50_000  # in a process of the command; Python's own value is 700 to 2,000

VERBS: dict[str, dict[str, str]] = {
    "Train": {
        "train": "train an agent from a config, or resume a run",
        "solve": "solve an environment that has no config, within a budget",
        "set": "change fields of a run while it trains",
        "sweep": "search hyper-parameters; `sweep show`, `best`, `list`",
        "eval": "score a trained agent on fresh episodes",
        "play": "watch an agent, or play yourself, in a window or in the terminal",
        "video": "record episodes of a trained agent",
        "inspect": "record episodes step by step: values, advantages, branches, worst moments",
        "record": "write episodes of a trained agent as a Minari dataset",
        "explain": "look into the network of a trained agent",
    },
    "Configs": {
        "list": "list the configs",
        "show": "print one config, resolved, as YAML or JSON",
        "check": "check config files and list every problem",
        "net": "print the layers of a config's network, with shapes and sizes",
        "schema": "print the JSON schema of config files, for editors",
        "smoke": "try every config briefly",
    },
    "Environments": {
        "envs": "list the environments; `envs show ID` describes one",
        "baselines": "list what random actions score in each environment",
        "roms": "list console games, import ROMs that you own",
    },
    "Runs": {
        "runs": "list the runs",
        "ui": "show runs, curves and comparisons in the browser; start trainings there",
        "run": "show one run: result, evaluations, checkpoints",
        "plot": "draw the learning curves of one or several runs",
        "experiments": "list the experiments, or the runs of one",
        "compare": "compare groups of seeds: scores with intervals, and a verdict",
        "jobs": "list what runs in the background, show its output, cancel it",
        "repro": "repeat a run and say whether the result is the same",
        "benchmark": "run a declared set of configs and seeds, and write its table",
        "report": "write a page about one or several runs, as HTML and Markdown",
        "metrics": "list the metrics with their meaning",
        "tag": "add tags to a run",
        "note": "write a note to a run",
        "archive": "move runs out of the listing, or back",
        "prune": "delete checkpoints that are not needed",
        "rm": "delete runs",
    },
    "Share": {
        "track": "send a run to W&B, TensorBoard, CSV or Trackio, now or while it trains",
        "export": "write a policy as an ONNX file or a C header",
        "publish": "put a run with its model card on the Hugging Face Hub",
        "pull": "download a published run and verify it",
        "hub": "datasets of runs on the Hub: push, pull, list",
        "import-sb3": "turn a model of Stable-Baselines3 or CleanRL into a run",
        "import-config": "translate hyper-parameters of other libraries",
    },
    "Agents": {
        "mcp": "serve the Model Context Protocol: agents train, debug and compare",
        "agents-guide": "print the guide for coding agents",
    },
    "This machine": {
        "doctor": "check this installation; `doctor env ID` an environment, `doctor run RUN` a run",
        "tune-envs": "find the fastest engine, number of environments and threads for a config",
        "bench": "measure speed on this machine, alone and against other libraries",
    },
}

# The modules of verbs, where they are not called like the verb.
MODULES = {
    "runs": ("run", "metrics"),
    "manage": ("set", "tag", "note", "archive", "prune", "rm"),
    "compare": ("plot", "report"),
    "experiments": ("jobs", "repro", "benchmark"),
    "configs": ("list", "show", "net", "schema"),
    "doctor": ("check", "smoke"),
    "envs": ("baselines", "roms"),
    "recordings": ("video", "record", "explain", "inspect"),
    "share": ("track", "export", "publish", "pull", "hub", "import-sb3", "import-config"),
    "serve": ("ui", "mcp", "agents-guide"),
    "bench": ("tune-envs",),
}

# Verbs that users of other systems look for, and the nearest alternative.
NOT_YET = {
    "enjoy": "gsolve play RUN shows an agent, gsolve video RUN records it",
}

EXAMPLES = (
    ("gsolve train CartPole-v1:ppo", "train"),
    ("gsolve train CartPole-v1:ppo --policy-lr 1e-3 --hidden-dims 64 64", "any field is a flag"),
    ("gsolve train CartPole-v1:ppo --help", "every field with this config's value"),
    ("gsolve train --resume @last", "continue the newest run exactly"),
    ("gsolve eval @last/@best --episodes 100", "score its best checkpoint"),
    ("gsolve plot @last -o curve.png", "look at it"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # replace what the encoding cannot represent
            stream.reconfigure(errors="replace")
    try:
        code = dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`gsolve list | head -1`): drop the rest, so that exiting is silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def dispatch(args: list[str]) -> int:
    """Print the help or the version, or run the verb that the first argument names."""
    if not args:
        print(help_text(), file=sys.stderr)
        return 2
    verb, rest = args[0], args[1:]
    if verb in ("-V", "--version", "version"):
        print(f"gymnasium-solver {__version__}")
        return 0
    if verb in ("-h", "--help", "help"):
        if not rest:
            print(help_text())
            return 0
        verb, rest = rest[0], ["--help"]
    if verb not in verb_names():
        print(f"gsolve: {printable(unknown_verb(verb))}", file=sys.stderr)
        return 2
    return call(verb, rest)


def call(verb: str, argv: list[str]) -> int:
    """Import the verb's module, run it, and turn an error into an exit code."""
    try:
        import_module(f"gymnasium_solver.cli.{module_of(verb)}")
        from gymnasium_solver.cli.flags import run_verb

        return run_verb(verb, argv)
    except TrustError as error:
        print(f"gsolve {verb}: {printable_lines(error)}", file=sys.stderr)
        return call(verb, [*argv, "--trust"]) if user_agrees("Import it now? [y/N] ") else 2
    except GsolveError as error:
        print(f"gsolve {verb}: {printable_lines(error)}", file=sys.stderr)
        if details := details_of(error):
            print(f"\n{printable_lines(details)}", file=sys.stderr)
        return 1 if isinstance(error, (DivergedError, WriteError)) else 2
    except ModuleNotFoundError as error:
        if (message := missing_training(error)) is None:
            raise
        print(f"gsolve {verb}: {message}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # argparse, after it has printed the help
        return int(stop.code or 0)
    except KeyboardInterrupt:
        print(f"gsolve {verb}: interrupted", file=sys.stderr)
        return 130


def user_agrees(question: str) -> bool:
    """The answer of the user at the terminal; no if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def module_of(verb: str) -> str:
    return next((module for module, verbs in MODULES.items() if verb in verbs), verb)


def verb_names() -> list[str]:
    return [name for group in VERBS.values() for name in group]


def unknown_verb(verb: str) -> str:
    """The message about a first word that is not a verb."""
    if verb.startswith("-"):
        return (
            f"unknown flag '{verb}' before the verb. Usage: gsolve <verb> [...]; see gsolve --help"
        )
    if ":" in verb or verb.endswith((".yaml", ".yml")):
        return f"'{verb}' is not a verb. Did you mean: gsolve train {verb}"
    if verb in NOT_YET:
        return f"'{verb}' is not implemented. Alternative: {NOT_YET[verb]}"
    from gymnasium_solver.suggest import nearest

    near = nearest(verb, verb_names(), n=1, cutoff=0.5)
    hint = f" Did you mean: gsolve {near[0]}?" if near else ""
    return f"unknown verb '{verb}'.{hint} Verbs: {', '.join(verb_names())}"


def help_text() -> str:
    lines = [
        "gsolve: solve Gymnasium environments. One config, one command.",
        "",
        "usage: gsolve <verb> [arguments]      gsolve <verb> --help for details",
    ]
    for group, verbs in VERBS.items():
        lines += ["", f"{group}:"]
        lines += [f"  {name:<13} {text}" for name, text in verbs.items()]
    lines += ["", "Examples:"]
    width = max(len(command) for command, _ in EXAMPLES)
    lines += [f"  {command:<{width}}  # {note}" for command, note in EXAMPLES]
    lines += [
        "",
        "A run is named by @last, its id, or a unique part of the id; a checkpoint by RUN/@best,",
        "RUN/@last or RUN/<env_steps>. Runs live in ./runs, $GSOLVE_RUNS or --runs-dir.",
        "Verbs that read take --json. -V, --version prints the version.",
    ]
    return "\n".join(lines)


def entry() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    prepare_process()
    code = main()
    if "torch" in sys.modules:
        gc.freeze()  # the process ends: a last search through all that was imported frees nothing
    sys.exit(code)


def prepare_process() -> None:
    """Settings of a process of the command; values that the user has set stay."""
    # An import of torch makes hundreds of thousands of objects that all stay. Looking through them
    # for garbage again and again takes a tenth of its time.
    gc.set_threshold(OBJECTS_BEFORE_GARBAGE, *gc.get_threshold()[1:])
    # On aarch64 oneDNN, torch's CPU kernels, leaves a perf-PID.map per process in the temp folder
    # for Linux perf. 0 switches that off (oneDNN's guide, "Profiling oneDNN Performance").
    if not os.environ.keys() & {"ONEDNN_JIT_PROFILE", "DNNL_JIT_PROFILE"}:
        os.environ["ONEDNN_JIT_PROFILE"] = "0"
    # torch's OpenMP threads spin for milliseconds while they wait for each other. On a core that
    # another process also wants, that takes most of the time: SAC ran at half the speed.
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ["GOMP_SPINCOUNT"] = "300"


if __name__ == "__main__":
    entry()
