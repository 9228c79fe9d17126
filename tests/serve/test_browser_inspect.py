"""The inspector in a real browser: the frame shown is the step asked for; keys, branch, compare."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")
from playwright.sync_api import expect

from gymnasium_solver.runs.episodes import get_episode, list_episodes
from gymnasium_solver.serve.web.episode_file import episode_page
from tests.media.counting import BLOCK
from tests.serve.inspect_site import LENGTH, Site, open_site

# Reads the count that the environment draws into its frame: the lowest bit on the left.
READ_FRAME = f"""(canvas) => {{
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let bit = 0; bit < 8; bit++) {{
    const at = 4 * (canvas.width * {BLOCK // 2} + bit * {BLOCK} + {BLOCK // 2});
    if (pixels[at] > 128) count |= 1 << bit;
  }}
  return count;
}}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("site")) as one:
        _, started = one.post(seed=3, greedy=False)
        one.wait(started["episode"])
        yield one


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    one = chromium.new_page(viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    one.on("pageerror", lambda error: faults.append(str(error)))
    one.on("console", lambda message: faults.append(message.text) if message.type == "error" else 0)
    yield one
    one.close()
    assert not faults


def open_inspector(page: Any, site: Site, **query: Any) -> Any:
    """The page with an episode, at its first step; the frame."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    page.goto(f"{site.url}inspect/{site.run.id}?{text}")
    frame = page.locator("canvas.ep-frame").first
    expect(frame).to_have_attribute("data-step", str(query.get("t", 0)), timeout=20_000)
    return frame


def finished(site: Site) -> str:
    """An episode that was played to its end."""
    return next(
        one.id
        for one in list_episodes(site.run)
        if one.result.get("steps") == LENGTH and not one.facts["parent"]
    )


def shown(frame: Any) -> int:
    return int(frame.evaluate(READ_FRAME))


def test_the_frame_is_the_step_that_was_asked_for(page: Any, site: Site) -> None:
    frame = open_inspector(page, site, episode=finished(site))
    slider = page.get_by_role("slider", name="Step")
    for t in (1, 64, 63, 17, LENGTH, 0, 88, 65):
        slider.fill(str(t))
        expect(frame).to_have_attribute("data-step", str(t))
        assert shown(frame) == t
    panel = page.locator("section[aria-label='Observation'] .ep-bar")
    expect(panel.locator("output").first).to_have_text("65")  # the first component is the count
    tracks = panel.locator(".ep-track").evaluate_all("all => all.map((e) => e.clientWidth)")
    assert len(set(tracks)) == 1  # bars of one list have one length
    worst = page.locator(".ep-notable-list button").first
    worst.click()
    expect(frame).to_have_attribute("data-step", worst.locator("b").inner_text())
    slider.fill("65")
    expect(page.locator(".ep-chart-canvas").first).to_have_attribute("data-step", "65")
    # Fast scrubbing ends at the last step asked for.
    page.evaluate(
        """() => { const slider = document.querySelector(".ep-slider");
        for (const t of [5, 70, 20, 85, 2, 60, 33]) {
          slider.value = String(t); slider.dispatchEvent(new Event("input")); } }"""
    )
    expect(frame).to_have_attribute("data-step", "33")
    assert shown(frame) == 33


def test_the_environment_and_the_model_are_described(page: Any, site: Site) -> None:
    open_inspector(page, site, episode=finished(site))
    model = site.get(f"/{finished(site)}")[1]["model"]
    for title, row in (("Environment", "actions"), ("Model", "parameters")):
        tab = page.locator("details.ep-about").filter(has_text=title).first
        tab.locator("summary").click()
        expect(tab.get_by_role("row", name=row).first).to_be_visible()
    layers = page.locator("details.ep-about table").nth(2).locator("tr")
    expect(layers).to_have_count(len(model["layers"]) + 1)


def test_the_keys(page: Any, site: Site) -> None:
    frame = open_inspector(page, site, episode=finished(site))

    def press(key: str, step: int) -> None:
        page.keyboard.press(key)
        expect(frame).to_have_attribute("data-step", str(step))
        assert shown(frame) == step

    press("ArrowRight", 1)
    press("Shift+ArrowRight", 11)
    press("ArrowLeft", 10)
    press("Shift+ArrowLeft", 0)
    press("End", LENGTH)
    press("Home", 0)
    page.get_by_role("slider", name="Step").focus()
    press("ArrowRight", 1)  # once, though the slider has the focus
    notable = [entry["step"] for entry in site.get(f"/{finished(site)}")[1]["notable"]]
    press(".", next(step for step in notable if step > 1))
    page.keyboard.press("]")
    expect(page.locator(".ep-speed")).to_have_text("2×")
    page.keyboard.press("[")
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    expect(frame).not_to_have_attribute("data-step", "0")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play (space)")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_text("branch from this step")).to_be_visible()


def test_playing_streams_into_the_page(page: Any, site: Site) -> None:
    pause = site.run.path.parents[1] / "pause"
    open_inspector(page, site, episode=finished(site))
    pause.touch()
    try:
        page.get_by_role("textbox", name="Seed").fill("12")
        page.get_by_role("button", name="Play", exact=True).click()
        status = page.locator(".ep-facts")
        expect(status).to_have_attribute("data-status", "running", timeout=60_000)
        slider = page.get_by_role("slider", name="Step")
        expect(slider).not_to_have_attribute("max", "0", timeout=20_000)  # while it is played
        assert status.get_attribute("data-status") == "running"
    finally:
        pause.unlink()
    expect(status).to_have_attribute("data-status", "done", timeout=30_000)
    expect(slider).to_have_attribute("max", str(LENGTH))


def test_an_address_plays_the_worst_of_some_episodes(page: Any, site: Site) -> None:
    page.goto(f"{site.url}inspect/{site.run.id}?worst=2&seed=21&greedy=0&checkpoint=@last")
    frame = page.locator("canvas.ep-frame")
    expect(frame).to_have_count(1, timeout=60_000)
    expect(page.get_by_role("heading", level=2)).to_contain_text(re.compile("seed 2[12], sampled"))
    assert "worst" not in page.url


def both_are_complete(page: Any) -> None:
    """Two episodes are shown on one clock, and all of their steps have arrived."""
    expect(page.locator("canvas.ep-frame")).to_have_count(2, timeout=20_000)
    slider = page.get_by_role("slider", name="Step")
    expect(slider).to_have_count(1)
    expect(slider).to_have_attribute("max", str(LENGTH), timeout=20_000)
    expect(page.locator(".ep-facts")).to_have_attribute("data-status", "done", timeout=20_000)


def test_a_branch_is_shown_beside_its_parent(page: Any, site: Site) -> None:
    name = finished(site)
    open_inspector(page, site, episode=name, t=40)
    taken = int(get_episode(site.run, name).actions()[40])
    page.keyboard.press(str(2 - taken))  # the other one of two actions
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("step 40")
    pause = site.run.path.parents[1] / "pause"
    pause.touch()
    try:
        dialog.get_by_role("button", name="Branch").click()
        difference = page.locator(".in-difference")
        # Known before it is played so far.
        expect(difference).to_have_attribute("data-step", "40", timeout=60_000)
        expect(difference).to_contain_text("A leaves B at step 40")
        expect(difference).not_to_contain_text("No difference")
    finally:
        pause.unlink()
    both_are_complete(page)
    page.keyboard.press("End")
    for frame in page.locator("canvas.ep-frame").all():
        expect(frame).to_have_attribute("data-step", str(LENGTH))  # one clock
        assert shown(frame) == LENGTH
    reward = page.locator("figure.ep-chart", has_text="Reward").first
    expect(reward.locator("canvas")).to_have_attribute("data-lines", "2")  # of both episodes
    difference.get_by_role("button", name="Go there").click()
    for frame in page.locator("canvas.ep-frame").all():
        expect(frame).to_have_attribute("data-step", "40")
    expect(page.locator(".chip", has_text="changed by hand")).to_be_visible()
    page.goto(re.sub("[?&]t=[0-9]+", "", page.url) + "&t=33")  # an address that was sent
    both_are_complete(page)
    for frame in page.locator("canvas.ep-frame").all():
        expect(frame).to_have_attribute("data-step", "33")


def test_another_checkpoint_on_the_same_seed(page: Any, site: Site) -> None:
    open_inspector(page, site, episode=finished(site))
    page.keyboard.press("c")
    page.get_by_role("dialog").get_by_role("button", name="Compare").click()
    expect(page.locator("canvas.ep-frame")).to_have_count(2, timeout=60_000)
    expect(page.locator(".in-difference")).to_contain_text(
        re.compile("difference", re.IGNORECASE), timeout=20_000
    )


def test_saliency_and_the_table(page: Any, site: Site) -> None:
    open_inspector(page, site, episode=finished(site), t=7)
    page.keyboard.press("s")
    expect(page.get_by_role("button", name="Why (gradient × input)")).to_be_visible(timeout=60_000)
    page.get_by_text("Steps as a table").click()
    row = page.locator(".ep-tr.current")
    expect(row).to_have_attribute("data-step", "7")
    page.locator(".ep-lines .ep-tr[data-step='9']").click()
    expect(page.locator("canvas.ep-frame")).to_have_attribute("data-step", "9")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV", exact=True).click()
    text = Path(download.value.path()).read_text()
    assert text.count("\n") == LENGTH + 2


def test_the_page_is_accessible_and_fits_a_phone(page: Any, site: Site) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    open_inspector(page, site, episode=finished(site))
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found = axe.run(page).response["violations"]
        serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], theme
    expect(page.get_by_role("heading", level=2).first).to_contain_text("checkpoint ")
    page.goto(f"{site.url}inspect")
    expect(page.locator(".in-pick tbody tr")).to_have_count(1)
    expect(page.locator(".in-thumb img")).to_be_visible()
    assert axe.run(page).response["violations"] == []
    page.set_viewport_size({"width": 390, "height": 800})
    open_inspector(page, site, episode=finished(site))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_episode_as_one_file_plays_from_disk(page: Any, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "episode.html"
    file.write_text(episode_page(get_episode(site.run, finished(site))), encoding="utf-8")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    frame = page.locator("canvas.ep-frame")
    expect(frame).to_have_attribute("data-step", "0")
    page.keyboard.press("End")
    expect(frame).to_have_attribute("data-step", str(LENGTH))
    assert shown(frame) == LENGTH
    page.get_by_role("slider", name="Step").fill("64")
    expect(frame).to_have_attribute("data-step", "64")
    assert shown(frame) == 64
    assert requests == [file.as_uri()]


def test_text_of_a_run_is_never_markup(page: Any, site: Site) -> None:
    """Names in a copied episode are text, in the page and in the file."""
    import json
    import shutil

    source = get_episode(site.run, finished(site)).path
    name = source.name[:-4] + "beef"
    copy = source.with_name(name)
    shutil.copytree(source, copy)
    bad = "<img src=x onerror=window.hit=1></script><script>window.hit=1</script>"
    facts = json.loads((copy / "episode.json").read_text())
    facts |= {"id": name, "title": bad, "env_id": bad}
    facts["features"][0]["name"] = bad
    facts["action"]["names"] = [bad, bad]
    facts["columns"] = [
        {**column, "labels": [bad] * column["width"] if column["labels"] else []}
        for column in facts["columns"]
    ]
    (copy / "episode.json").write_text(json.dumps(facts))
    rows = [{"action": bad, "greedy": bad, "info": {bad: bad}}] * (LENGTH + 1)
    (copy / "info.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = copy / "page.html"
    file.write_text(episode_page(get_episode(site.run, name)), encoding="utf-8")
    for url in (f"{site.url}inspect/{site.run.id}?episode={name}", file.as_uri()):
        page.goto(url)
        expect(page.locator("canvas.ep-frame")).to_have_attribute("data-step", "0")
        page.get_by_text("Steps as a table").click()
        assert page.evaluate("window.hit") is None
        expect(page.locator("img[src=x]")).to_have_count(0)
    shutil.rmtree(copy)
