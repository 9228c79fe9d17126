"""The generated tables of the documentation are those that the code gives now."""

from pathlib import Path

import pytest

from docs import make_tables


@pytest.mark.parametrize("page", make_tables.PAGES, ids=lambda page: page.name)
def test_the_page_is_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fix = f"{page.name} is stale: run `make docs`"
    assert make_tables.rendered(text) == text, fix


def test_every_table_has_its_place_and_every_place_its_table() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in make_tables.PAGES)
    places = [match["name"] for match in make_tables.PLACE.finditer(text)]
    assert sorted(places) == sorted(make_tables.TABLES)
    assert text.count("<!-- generated:") == len(places)


def test_a_stale_table_is_noticed() -> None:
    page = (
        "# x\n<!-- generated: aliases (docs/make_tables.py) -->\nold\n<!-- end of generated -->\n"
    )
    new = make_tables.rendered(page)
    assert "max_timesteps" in new
    assert "old" not in new
    assert make_tables.rendered(new) == new
