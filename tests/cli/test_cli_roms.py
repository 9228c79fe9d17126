"""`gsolve roms`: console games that are here, and importing."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from gymnasium_solver.cli.main import main

retro = pytest.importorskip("stable_retro", reason="stable-retro has wheels for Linux x86_64 only")
FREE = "Airstriker-Genesis-v0"


def test_list(capsys):
    assert main(["roms", "list", "--json"]) == 0
    assert {"env_id": f"Retro/{FREE}", "has_rom": True} in json.loads(capsys.readouterr().out)
    assert main(["roms", "list", "airstriker", "--all"]) == 0
    assert capsys.readouterr().out == f"Retro/{FREE}\n"
    assert main(["roms", "list", "no such game"]) == 0
    assert "no game has 'no such game'" in capsys.readouterr().out


def test_import_finds_a_rom_by_its_content_in_an_archive(tmp_path, capsys, monkeypatch):
    """Into a copy of the package's data, from which the ROM was taken away."""
    rom = Path(retro.data.get_romfile_path(FREE))
    data = tmp_path / "data"
    for kind in retro.data.Integrations.ALL.paths:
        (data / kind).mkdir(parents=True)
    shutil.copytree(rom.parent, data / "stable" / FREE)
    (data / "stable" / FREE / rom.name).unlink()
    monkeypatch.setattr(retro.data, "path", lambda hint=None: str(data))
    assert main(["roms", "list"]) == 0
    assert "no game has ''" in capsys.readouterr().out
    (tmp_path / "mine").mkdir()
    with zipfile.ZipFile(tmp_path / "mine" / "old games.zip", "w") as archive:
        archive.write(rom, "unknown name.md")
    (tmp_path / "mine" / "broken.zip").write_bytes(b"no archive")
    assert main(["roms", "import", str(tmp_path / "mine")]) == 0
    assert capsys.readouterr().out == f"imported Retro/{FREE}\n"
    assert main(["roms", "import", str(tmp_path / "mine")]) == 0
    assert "no new ROM" in capsys.readouterr().out


def test_mistakes(capsys):
    assert main(["roms", "import"]) == 2
    assert "needs a folder" in capsys.readouterr().err
    assert main(["roms", "import", "/nowhere"]) == 2
    assert "/nowhere does not exist" in capsys.readouterr().err
