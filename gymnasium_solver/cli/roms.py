"""`gsolve roms list|import`: list console games, import ROMs that you own."""

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.cli.flags import Parser, UsageError
from gymnasium_solver.paths import is_file, is_folder, user_path


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "roms",
        "Console games (Retro/<Game>): list those that can be played, import ROMs that you own.",
        "examples:\n  gsolve roms list\n  gsolve roms list mario --all\n"
        "  gsolve roms import ~/roms\n\n"
        "A ROM is recognised by its content, not its name, also inside .zip archives.\n"
        "Airstriker-Genesis is free and comes with the package.",
    )
    parser.add_argument("action", choices=("list", "import"), help="what to do")
    parser.add_argument("what", nargs="?", metavar="FILTER|DIR", help="part of a name; a folder")
    parser.add_argument(
        "--all", action="store_true", help="list: include games whose ROM is missing"
    )
    parser.add_json()
    args = parser.read(argv)

    from gymnasium_solver.envs.suites.retro import import_retro

    data = import_retro("gsolve roms").data
    if args.action == "list":
        return print_games(data, args.what or "", args.all, args.json)
    if args.what is None:
        raise UsageError("import needs a folder; as in: gsolve roms import ~/roms")
    return print_imported(import_roms(data, user_path(args.what)), args.json)


def games(data: Any) -> dict[str, bool]:
    """Every game that stable-retro knows -> whether its ROM is installed."""
    from gymnasium_solver.envs.suites.retro import has_rom

    return {game: has_rom(data, game) for game in data.list_games(data.Integrations.ALL)}


def import_roms(data: Any, folder: Path) -> list[str]:
    """Copy the ROMs under a folder (or one file) to where stable-retro looks for them."""
    if not (is_folder(folder) or is_file(folder)):
        raise UsageError(f"{folder} does not exist")
    before = {game for game, is_here in games(data).items() if is_here}
    with tempfile.TemporaryDirectory() as unpacked:
        files = [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]
        for number, archive in enumerate([p for p in files if p.suffix.lower() == ".zip"]):
            try:
                with zipfile.ZipFile(archive) as content:
                    content.extractall(Path(unpacked) / str(number))
            except (zipfile.BadZipFile, OSError, RuntimeError):  # RuntimeError: has a password
                continue
        files += [p for p in Path(unpacked).rglob("*") if p.is_file()]
        try:
            data.merge(*(str(path) for path in files), quiet=True)
        except PermissionError as error:
            raise UsageError(f"the package's folder cannot be written to: {error}") from error
    return sorted(game for game, is_here in games(data).items() if is_here and game not in before)


def print_games(data: Any, pattern: str, show_all: bool, as_json: bool) -> int:
    found = {
        game: is_here
        for game, is_here in games(data).items()
        if pattern.lower() in game.lower() and (is_here or show_all)
    }
    if as_json:
        from gymnasium_solver.cli.tables import print_json

        print_json([{"env_id": f"Retro/{g}", "has_rom": here} for g, here in found.items()])
        return 0
    for game, is_here in found.items():
        print(f"Retro/{game}{'' if is_here else '   (no ROM)'}")
    if not found:
        more = "" if show_all else "; --all includes games whose ROM is missing"
        print(f"no game has {pattern!r} in its name{more}")
    return 0


def print_imported(imported: list[str], as_json: bool) -> int:
    if as_json:
        from gymnasium_solver.cli.tables import print_json

        print_json([f"Retro/{game}" for game in imported])
        return 0
    for game in imported:
        print(f"imported Retro/{game}")
    if not imported:
        print("no new ROM of a game that stable-retro knows")
    return 0
