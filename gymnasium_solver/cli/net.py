"""`gsolve net <env>[:<variant>]`: the layers of a config's network, with shapes and sizes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import (
    MANY,
    NONE,
    ONE,
    FieldArgs,
    UsageError,
    load_target,
    parse_fields,
    target_of,
)

if TYPE_CHECKING:
    from gymnasium_solver.nets.describe import LayerRow

OPTIONS = {
    "help": NONE,
    "json": NONE,
    "set": ONE,
    "overlay": MANY,
    "env_kwargs": MANY,
    "out": ONE,
    "trust": NONE,
}
HELP = """\
usage: gsolve net <env>[:<variant>] [flags]
       gsolve net path/to/config.yaml[:variant] [flags]

The layers of the network that gsolve train would build: output shape, parameters and multiply-adds
for one observation. Any field is a flag, as in gsolve train.

flags:
  --FIELD VALUE...   set a field: --hidden-dims 256 256, --layers "[{linear: 64}, layer_norm, silu]"
  --out FILE.svg     also draw the layers to a picture
  --json             print JSON, for programs
  --overlay, -s, --env-kwargs, --trust   as in gsolve train
  -h, --help         show this help

examples:
  gsolve net CartPole-v1:ppo
  gsolve net CartPole-v1:ppo --layers "[{linear: 64}, {residual: [{linear: 64}, relu]}]"
  gsolve net ALE/Pong-v5:ppo --model-id cnn_impala --out net.svg"""


def main(argv: Sequence[str]) -> int:
    args = parse_fields(argv, OPTIONS)
    target = target_of(args)
    if args.has("help"):
        print(HELP)
        return 0
    if target is None:
        raise UsageError("no target given, for example: gsolve net CartPole-v1:ppo")
    rows = read(args, target)
    out = args.last("out")
    if out is not None:
        if Path(out).suffix != ".svg":
            raise UsageError(f"--out {out}: expected a name that ends in .svg")
        from gymnasium_solver.nets.describe import picture
        from gymnasium_solver.paths import write_output

        write_output(out, "the picture", picture(rows, target))
    if args.has("json"):
        from gymnasium_solver.cli.tables import print_json

        print_json({"target": target, "layers": [row._asdict() for row in rows], **totals(rows)})
        return 0
    print_rows(rows)
    if out is not None:
        print(f"\n{out}")
    return 0


def read(args: FieldArgs, target: str) -> "list[LayerRow]":
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.nets.describe import describe_network
    from gymnasium_solver.training.agents import build_agent

    config = load_target(args, target, OPTIONS).replace(device="cpu")
    env = env_from_config(config, 1)
    try:
        agent = build_agent(config, env.observation_space, env.action_space)
        shape = agent.policy.actions.shape
        n_actions = math.prod(shape) if shape else 0
        return describe_network(agent.net, env.reset(0), n_actions)
    finally:
        env.close()


def totals(rows: "list[LayerRow]") -> dict[str, Any]:
    return {
        "parameters": sum(row.parameters for row in rows),
        "multiply_adds": sum(row.multiply_adds for row in rows),
    }


def print_rows(rows: "list[LayerRow]") -> None:
    from gymnasium_solver.cli.tables import make_console, plain_table

    right = {"justify": "right", "no_wrap": True}
    table = plain_table("layer", "kind", "output", ("parameters", right), ("multiply-adds", right))
    for row in rows:
        shape = " x ".join(map(str, row.output))
        table.add_row(row.name, row.kind, shape, f"{row.parameters:,}", f"{row.multiply_adds:,}")
    sums = totals(rows)
    table.add_row("total", "", "", f"{sums['parameters']:,}", f"{sums['multiply_adds']:,}")
    make_console().print(table)
