"""`gsolve import-config FILE`: hyper-parameters of another library as our YAML."""

import sys
from collections.abc import Sequence
from pathlib import Path

from gymnasium_solver.cli.flags import Parser
from gymnasium_solver.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "import-config",
        "Translate hyper-parameters of the RL zoo (ppo.yml), CleanRL (a script, or its arguments\n"
        "as YAML or JSON) or SLM-Lab (a spec) into our YAML. Every field is translated or named\n"
        "as not translated, with the reason. Nothing in the file is executed.",
        "examples:\n  gsolve import-config hyperparams/ppo.yml --env-id CartPole-v1\n"
        "  gsolve import-config cleanrl/ppo.py --out configs/cleanrl.yaml\n"
        "  gsolve import-config ppo_cartpole.json",
    )
    parser.add_argument("file", metavar="FILE", help="YAML, JSON or a Python script")
    parser.add_argument("--env-id", metavar="ID", help="the environment, where a file has several")
    parser.add_argument(
        "--algo", metavar="NAME", help="the algorithm (default: as the file or its name says)"
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="write here instead of printing")
    parser.add_json()
    args = parser.read(argv)
    from gymnasium_solver.paths import write_output
    from gymnasium_solver.share.foreign.config_files import read_foreign
    from gymnasium_solver.training.prepare import build_config

    found = read_foreign(Path(args.file), args.env_id, args.algo)
    build_config({"env_id": found.env_id, "algo_id": found.algo_id, **found.mapped.fields})
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        shown = {"library": found.made_by, "env_id": found.env_id, "algo_id": found.algo_id}
        print_json({**shown, "fields": found.mapped.fields, "unmapped": found.mapped.unmapped})
        return 0
    if args.out is None:
        print(found.text(), end="")
        return 0
    out = Path(args.out)
    if out.exists():
        raise ConfigError(f"{out} exists; choose another name, or remove it.")
    write_output(out, "the config", found.text())
    for name, why in sorted(found.mapped.unmapped.items()):
        print(f"not translated: {name}: {why}", file=sys.stderr)
    print(f"{out}: gsolve train {out}:{found.algo_id}")
    return 0
