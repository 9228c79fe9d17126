"""`gsolve import-sb3 MODEL.zip --env-id ID`: a model of Stable-Baselines3 or CleanRL as a run."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.share.foreign.hyperparams import Mapped


def main(argv: Sequence[str]) -> int:
    args = _parser().read(argv)
    path = Path(args.model)
    if not path.is_file():
        raise UsageError(f"{args.model}: there is no such file")
    episodes = None if args.no_eval else _count(args.episodes)
    from gymnasium_solver.config.yaml_file import parse_value
    from gymnasium_solver.runs.run import runs_root
    from gymnasium_solver.share.foreign.imported_model import import_model
    from gymnasium_solver.share.foreign.model_files import read_cleanrl, read_sb3

    env_id = args.env_id or _env_in_name(path)
    statistics = Path(args.vec_normalize) if args.vec_normalize else None
    is_sb3 = path.suffix == ".zip"
    if statistics is not None and not is_sb3:
        raise UsageError("--vec-normalize belongs to a model of SB3 (.zip)")
    model = read_sb3(path, statistics) if is_sb3 else read_cleanrl(path)
    overrides = {}
    for word in args.set or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word}: expected KEY=VALUE")
        overrides[key.replace("-", "_")] = parse_value(value)
    run, mapped = import_model(
        model,
        env_id,
        runs_root(args.runs_dir),
        source=path.name,
        name=args.name,
        overrides=overrides,
        episodes=episodes,
        command=["gsolve", "import-sb3", path.name],
    )
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        meta = run.meta()
        shown = {"run": run.id, "path": str(run.path), "test": meta.get("test")}
        print_json({**shown, "fields": mapped.fields, "unmapped": mapped.unmapped})
    else:
        print_result(run, mapped)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "import-sb3",
        "Turn a model of Stable-Baselines3 (PPO, A2C, DQN, SAC, TD3, DDPG with MLP policies,\n"
        "PPO, A2C and DQN with CNN policies) or of CleanRL (a .cleanrl_model file) into a run\n"
        "that can be evaluated, watched, exported and trained further. Only tensors and plain\n"
        "values are read; nothing is unpickled.",
        "examples:\n  gsolve import-sb3 ppo-CartPole-v1.zip\n"
        "  gsolve import-sb3 model.zip --env-id HalfCheetah-v5 --vec-normalize vec_normalize.pkl\n"
        "  gsolve import-sb3 ppo.cleanrl_model --env-id CartPole-v1",
    )
    parser.add_argument("model", metavar="FILE", help="model.zip of SB3, or a .cleanrl_model")
    parser.add_argument(
        "--env-id", metavar="ID", help="its environment (default: as the file name says)"
    )
    parser.add_argument(
        "--vec-normalize", metavar="FILE", help="statistics of VecNormalize (vec_normalize.pkl)"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the run")
    parser.add_argument(
        "--episodes", metavar="N", default="100", help="held-out episodes to score it (100)"
    )
    parser.add_argument("--no-eval", action="store_true", help="do not score it")
    parser.add_argument(
        "-s", "--set", action="append", metavar="KEY=VALUE", help="a field of the config"
    )
    parser.add_runs_dir()
    parser.add_json()
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--episodes {text}: must be a whole number of at least 1")
    return int(text)


def _env_in_name(path: Path) -> str:
    """`ppo-CartPole-v1.zip`, as the zoo names its models."""
    match = re.search(r"([A-Z][A-Za-z0-9]+(?:-[A-Za-z0-9]+)*-v\d+)", path.stem)
    if match is None:
        raise UsageError(f"{path.name} does not say which environment it plays; give --env-id ID")
    return match[1]


def print_result(run: "Run", mapped: "Mapped") -> None:
    from gymnasium_solver.cli.tables import make_console

    console = make_console()

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)

    meta = run.meta()
    test = meta.get("test")
    score = ""
    if test:
        stderr = "" if test["stderr"] is None else f" ± {test['stderr']:.3g}"
        score = f", {test['mean']:.2f}{stderr} over {test['episodes']} episodes"
    line(f"{run.path}: {meta['env_id']} by {meta['algo_id']}{score}")
    for name, why in sorted(mapped.unmapped.items()):
        line(f"  not used: {name} ({why})", "bright_black")
    line(f"gsolve eval {run.id}; gsolve train ... --init-from-run {run.id}", "bright_black")
