"""`gsolve eval RUN[/CHECKPOINT]`: evaluate a trained agent, greedy and sampled, on new episodes.

The same checkpoint, seed and number of episodes give the same scores: by default those of the run's
held-out test, with `--seed val` those of the validation that selected the checkpoint.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.runs.run import Run
    from gymnasium_solver.training.observer import EvalResult


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "eval",
        "Evaluate a trained agent: mean return over whole episodes, greedy and sampled.",
        "examples:\n  gsolve eval @last\n  gsolve eval a1b2/@best --episodes 100 --greedy\n"
        "  gsolve eval a1b2/50000 --seed val --json",
    )
    parser.add_argument(
        "checkpoint",
        metavar="RUN[/CHECKPOINT]",
        help="@last, an id or a part of one; then /@best, /@last or /<env_steps> (default: @best)",
    )
    parser.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="number of whole episodes (default: as in the run's test)",
    )
    parser.add_argument(
        "--seed",
        default="test",
        metavar="test|val|train|INT",
        help="seed of the environments (default: test)",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--greedy", action="store_true", help="use only the most likely action")
    mode.add_argument("--sampled", action="store_true", help="use only sampled actions")
    parser.add_json()
    parser.add_runs_dir()
    args = parser.read(argv)
    if args.episodes is not None and args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes}: must be at least 1")

    from gymnasium_solver.runs.run import runs_root

    modes = {"greedy": True, "sampled": False}
    if args.greedy or args.sampled:
        modes = {"greedy": True} if args.greedy else {"sampled": False}
    report = score(args.checkpoint, runs_root(args.runs_dir), args.episodes, args.seed, modes)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        scores = {name: result.to_dict() for name, result in report["scores"].items()}
        print_json({**report, "scores": scores})
    else:
        print_scores(report)
    return 0


def score(
    ref: str, root: Any, episodes: int | None, seed: str, modes: dict[str, bool]
) -> dict[str, Any]:
    """Load the checkpoint, play the episodes and build the report."""
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.runs.checkpoint import load_checkpoint
    from gymnasium_solver.runs.resolve import resolve_checkpoint
    from gymnasium_solver.training.agents import agent_from_checkpoint
    from gymnasium_solver.training.evaluate import evaluate, n_eval_envs
    from gymnasium_solver.training.prepare import load_config
    from gymnasium_solver.training.threads import limited_threads, pick_threads

    found = resolve_checkpoint(ref, root)
    config = load_config(str(found.run.config_path))
    checkpoint = load_checkpoint(found.path)
    if episodes is None:
        test_episodes = None if seed == "val" else found.run.meta().get("test_episodes")
        episodes = int(test_episodes or config.eval_episodes)
    env_seed = pick_seed(config, seed, checkpoint.env_steps, found.run)
    env = env_from_config(config, n_eval_envs(config, episodes))
    try:
        # As in training, so that scores are reproducible.
        with limited_threads(pick_threads(config, env.observation_space)):
            agent = agent_from_checkpoint(config, checkpoint)
            scores: dict[str, EvalResult] = {
                name: evaluate(
                    agent.policy,
                    env,
                    episodes,
                    greedy=greedy,
                    seed=env_seed,
                    env_steps=checkpoint.env_steps,
                    epoch=checkpoint.state["progress"]["epoch"],
                )
                for name, greedy in modes.items()
            }
    finally:
        env.close()
    own_threshold = config.reward_threshold
    return {
        "run": found.run.id,
        "checkpoint": found.label,
        "env_steps": checkpoint.env_steps,
        "env_id": config.env_id,
        "seed": env_seed,
        "threshold": env.spec.reward_threshold if own_threshold is None else own_threshold,
        "stored": checkpoint.metrics.get("score"),
        "scores": scores,
    }


def pick_seed(config: "Config", seed: str, env_steps: int, run: "Run") -> int:
    """The seed that a stage uses for the checkpoint at `env_steps`, or the given number."""
    from gymnasium_solver.runs.query import get_events
    from gymnasium_solver.training.evaluator import eval_seed
    from gymnasium_solver.training.seeds import stage_seed

    if seed == "test":
        tests = [event for event in get_events(run, "eval") if event.get("stage") == "test"]
        own = [event["seed"] for event in tests if event["env_steps"] == env_steps]
        return int(own[-1]) if own else eval_seed(config, "test", env_steps)
    if seed == "val":
        return eval_seed(config, "val", env_steps)
    if seed == "train":
        return stage_seed(config, seed)
    if not seed.isdigit() or int(seed) >= 2**31:
        raise UsageError(f"--seed {seed}: expected test, val, train or a number below 2^31")
    return int(seed)


def print_scores(report: dict[str, Any]) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.dashboard import GREEN
    from gymnasium_solver.cli.tables import make_console, plain_table, print_table
    from gymnasium_solver.runs.words import ScoreText

    console = make_console()
    console.print(
        Text.assemble(
            (f"{report['run']}/{report['checkpoint']}", "bold"),
            f"  {report['env_id']}, {report['env_steps']:,} env steps, seed {report['seed']}",
        )
    )
    right = {"justify": "right"}
    table = plain_table(
        "",
        *((name, right) for name in ("mean", "stderr", "std", "min", "max", "length", "episodes")),
        "",
    )
    threshold = report["threshold"]
    text = ScoreText(threshold, [result.mean for result in report["scores"].values()])
    for name, result in report["scores"].items():
        reaches = threshold is not None and result.mean >= threshold
        figures = (result.mean, result.stderr, result.std, result.min, result.max)
        table.add_row(
            name,
            *(text(figure) for figure in figures),
            fmt.number(result.length_mean, 1),
            str(result.episodes),
            Text(f"★ reaches {text.threshold}", style=GREEN) if reaches else "",
        )
    print_table(console, table)
    if report["stored"] is not None:
        stored = text(report["stored"])
        console.print(f"validation when this checkpoint was saved: {stored}", style="bright_black")
