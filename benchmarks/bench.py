"""Our speed beside our peers', measured in one run on one machine.

    make bench                                  # everything, about an hour on two cores
    make bench ARGS=--quick                     # a short pass, to see that it works
    make bench ARGS="--only solved --seeds 5"

Four parts: `engines` (env-only steps/s), `throughput` (PPO on CartPole-v1, same work on both
sides), `solved` (from the shell to a solved CartPole-v1) and `off_policy` (DQN and SAC, same work
on all sides). All sides take turns in each repeat; medians and ranges are told. Raw figures go to
results/<name>.json, tables to results/<name>.md; a quick pass writes to build/bench instead,
because its figures are not for publishing.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks import engines, off_policy, training
from benchmarks.harness import ROOT, Meter, describe, header, say, write

QUIET_CORES = 0.15  # what others may use of the machine while figures are taken for publishing
PARTS = ("engines", "throughput", "solved", "off_policy")


def main() -> None:
    args = parse_args()
    result: dict[str, Any] = header(shown_command(args)) | {"quick": args.quick, "others_cores": {}}
    peers = [training.find_sb3(args.peers_python)]
    if "off_policy" in args.only:
        peers.append(off_policy.find_peer(off_policy.SBX, args.peers_python))
    result["peers"] = [peer.describe() for peer in peers]
    for peer in peers:
        if peer.missing:
            say(f"bench: {peer.name} is left out: {peer.missing}")
    for part in args.only:
        meter = Meter()
        result[part] = measure(part, args, peers)
        result["others_cores"][part] = meter.read()[1]
        write(args.out, args.name, result, markdown(result))  # a later failure loses nothing
    say(f"bench: wrote {args.name}.json and {args.name}.md")
    print(markdown(result))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short repeat of everything")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--repeats", type=int, help="repeats of all but solved (3)")
    parser.add_argument("--seeds", type=int, help="seeds of solved (3)")
    parser.add_argument("--steps", type=int, help="env steps of throughput (100000)")
    parser.add_argument("--name", help="name of the result files (bench, or quick)")
    parser.add_argument("--out", type=Path, help="folder of the result files")
    parser.add_argument(
        "--peers-python", type=Path, default=ROOT / ".venv-peers/bin/python", metavar="PYTHON"
    )
    args = parser.parse_args()
    args.repeats = args.repeats or (1 if args.quick else 3)
    args.seeds = args.seeds or (1 if args.quick else 3)
    args.steps = args.steps or (10_000 if args.quick else 100_000)
    args.name = args.name or ("quick" if args.quick else "bench")
    args.out = args.out or ROOT / ("build/bench" if args.quick else "benchmarks/results")
    args.peers_python = args.peers_python.absolute()
    return args


def shown_command(args: argparse.Namespace) -> str:
    """The command that repeats this, without the paths of the machine that ran it."""
    flags = ["--quick"] if args.quick else []
    if tuple(args.only) != PARTS:
        flags += ["--only", *args.only]
    flags += [f"--repeats {args.repeats}", f"--seeds {args.seeds}", f"--steps {args.steps}"]
    return f'make bench ARGS="{" ".join(flags)}"'


def measure(part: str, args: argparse.Namespace, peers: list[training.Peer]) -> Any:
    if part == "engines":
        cases, seconds = (engines.QUICK, 0.3) if args.quick else (engines.FULL, 2.0)
        return engines.measure(cases, args.repeats, seconds)
    if part == "throughput":
        return training.throughput(peers[0], args.repeats, args.steps)
    if part == "off_policy":
        return off_policy.measure(peers, args.repeats, args.quick)
    return training.solved(peers[0], args.seeds)


def markdown(result: dict[str, Any]) -> str:
    lines = ["# Benchmark" + (" (quick pass: not for publishing)" if result["quick"] else "")]
    lines.append(describe(result))
    for peer in result["peers"]:
        used = ", ".join(f"{name} {v}" for name, v in peer["versions"].items())
        lines.append(f"- {peer['name']}: {peer['missing'] or used}")
    lines[1:] = ["\n".join(lines[1:]), "Medians, with the range over the repeats in brackets."]
    if (others := most_by_others(result)) > QUIET_CORES:
        lines.append(
            f"**Not for publishing: the machine was busy.** Others used up to {others:.1f} cores "
            "during a measurement."
        )
    if "throughput" in result:
        lines += throughput_section(result)
    if "solved" in result:
        lines += solved_section(result["solved"])
    if "off_policy" in result:
        lines += off_policy_section(result["off_policy"])
    if "engines" in result:
        lines += ["## Environment engines, no learning", engines.markdown(result["engines"])]
    return "\n\n".join(lines)


def most_by_others(result: dict[str, Any]) -> float:
    """Cores that other processes used, in the worst of the measurements."""
    runs = [run for part in ("throughput", "off_policy") for run in result.get(part, [])]
    runs += result.get("solved", {}).get("runs", [])
    used = [*result["others_cores"].values(), *(run.get("others_cores") for run in runs)]
    return max((cores for cores in used if cores is not None), default=0.0)


def throughput_section(result: dict[str, Any]) -> list[str]:
    steps = min(row["env_steps"] for row in result["throughput"] if "error" not in row)
    return [
        "## PPO on CartPole-v1, the same work",
        "rl-zoo hyper-parameters (8 envs × 32 steps, batch 256, 20 epochs, 2×64 tanh), evaluation "
        "off on both sides. Training steps/s leave out start-up and the first iteration; the time "
        "from the shell has everything, and for us also the run folder that SB3 does not write.",
        training.throughput_markdown(result["throughput"], steps),
    ]


def solved_section(solved: dict[str, Any]) -> list[str]:
    rule = solved["rule"]
    return [
        "## From the shell to a solved CartPole-v1",
        "Out of the box: our tuned `gsolve train CartPole-v1:ppo` against SB3 with the rl-zoo "
        f"hyper-parameters. One rule for both: stop when a greedy evaluation of "
        f"{rule['eval_episodes']} episodes, every {rule['eval_every']:,} env steps, has a mean of "
        f"{rule['threshold']:g}. Default threads. Ours includes saving and a final test.",
        training.solved_markdown(solved),
    ]


def off_policy_section(rows: list[dict[str, Any]]) -> list[str]:
    warm = " and ".join(f"{steps:,} ({algo})" for algo, steps in off_policy.WARM_STEPS.items())
    return [
        "## DQN and SAC, the same work",
        "One env. DQN: rl-zoo hyper-parameters (128 updates of 64 after every 256 steps, 2×256). "
        "SAC: the defaults of SB3 and sbx (an update of 256 after every step, 2×256). Evaluation "
        f"off on all sides. Training steps/s are counted from env step {warm} on, after random "
        "actions and compilation; ratios are taken pair by pair. sbx's DQN does not clip "
        "gradients. Ours includes the run folder that the others do not write.",
        off_policy.markdown(rows),
    ]


if __name__ == "__main__":
    main()
