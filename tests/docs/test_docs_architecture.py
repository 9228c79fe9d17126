"""The map of architecture.md names files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_file_on_the_map_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    block = page[page.index("```\ngymnasium_solver/") :].split("```")[1]
    missing = []
    for room in re.split(r"\n  (?=[a-z_/.]+ )", block)[1:]:
        folder, _, text = room.partition(" ")
        if not folder.endswith("/"):
            continue
        known = {path.name for path in (ROOT / "gymnasium_solver" / folder).rglob("*.py")}
        missing += [f"{folder}{name}" for name in re.findall(r"\b\w+\.py\b", text)
                    if name not in known]  # fmt: skip
    assert not missing
