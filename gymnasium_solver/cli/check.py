"""`gsolve check [PATH...]`: find everything that is wrong with config files, without training."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.paths import is_file, is_folder, user_path

if TYPE_CHECKING:
    from gymnasium_solver.training.check import FileReport


def main(argv: Sequence[str]) -> int:
    """Exit code 1 if there is a problem."""
    parser = Parser(
        "check",
        "Find every problem in every config: fields, values, wrappers and their options, plugins,\n"
        "observers, environment ids. Nothing is trained.",
        "examples:\n  gsolve check\n  gsolve check configs/My.yaml\n"
        "  gsolve check configs other/Mine.yaml --json",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files, or folders of them (default: ./configs, else the shipped ones)",
    )
    parser.add_json()
    args = parser.read(argv)
    files = list(config_paths(args.paths))
    if not files:
        raise UsageError(f"no config files in {', '.join(args.paths)}")

    from gymnasium_solver.training.check import check_file

    reports = [check_file(path) for path in files]
    problems = [problem for report in reports for problem in report.problems]
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        counts = {"files": len(files), "configs": sum(report.configs for report in reports)}
        print_json({**counts, "problems": [asdict(problem) for problem in problems]})
    else:
        for problem in problems:
            print(problem)
        print(summary(reports))
    return 1 if problems else 0


def config_paths(given: Sequence[str]) -> Iterator[Path]:
    """The files that are meant, each once."""
    from gymnasium_solver.config.find import SHIPPED, SUFFIXES, config_files

    default = Path("configs") if any(config_files(Path("configs"))) else SHIPPED
    seen = set()
    for path in [user_path(text) for text in given] or [default]:
        if not (is_folder(path) or is_file(path)):
            raise UsageError(f"there is no file or folder {path}")
        if path.is_file() and path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: config files end in {', '.join(SUFFIXES)}")
        for file in [path] if path.is_file() else config_files(path):
            if file not in seen:
                seen.add(file)
                yield file


def summary(reports: "Iterable[FileReport]") -> str:
    reports = list(reports)
    n_problems = sum(len(report.problems) for report in reports)
    n_bad = sum(bool(report.problems) for report in reports)
    checked = (
        f"{_count(sum(r.configs for r in reports), 'config')} in {_count(len(reports), 'file')}"
    )
    if not n_problems:
        return f"{checked}: no problems"
    return f"{_count(n_problems, 'problem')} in {_count(n_bad, 'file')}; checked {checked}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"
