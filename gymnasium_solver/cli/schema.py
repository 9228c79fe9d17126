"""`gsolve schema`: the JSON schema of config files, so that an editor completes and checks them."""

import json
from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser
from gymnasium_solver.paths import write_output


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "schema",
        "The JSON schema of config files: every field of every algorithm, with documentation.",
        "examples:\n  gsolve schema -o gsolve.schema.json\n\n"
        "Editors with a YAML language server use it if the first line of a config is:\n"
        "  # yaml-language-server: $schema=gsolve.schema.json",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead of printing")
    parser.add_json()
    args = parser.read(argv)

    from gymnasium_solver.algos.file_schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if args.output is None:
        print(text, end="")
        return 0
    print(write_output(args.output, "the schema", text))
    return 0
