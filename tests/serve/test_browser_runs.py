"""The table of runs in a real browser: what differs, groups, selection, filter, palette, jobs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from gymnasium_solver.backends import local
from gymnasium_solver.runs.manage import change_tags
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.web.app import BackgroundServer
from gymnasium_solver.serve.web.security import Settings
from tests.serve.made_runs import made_run
from tests.serve.test_web_browser import ROWS, expect

Open = Callable[..., Any]


def test_the_list_says_what_differs_and_the_filter_what_it_does(
    open_page: Open, runs: Path
) -> None:
    change_tags(Run(runs / "cart-0.001-0"), ["paper"])
    running = made_run(runs, "long-test", seed=4_000_000_001, rows=4)
    running.update_meta(status="running", pid=os.getpid(), pid_started=None, stop_reason=None,
                        test=None, solved=False, env_steps=4000, max_env_steps=4000)  # fmt: skip
    running.tell_activity("testing", 12, 30)
    page = open_page()
    rows = page.locator(ROWS)
    expect(rows).to_have_count(9)
    expect(rows.filter(has_text="cart-0.0003-1")).to_contain_text("policy_lr 0.0003")
    busy = rows.filter(has_text="long-test")
    expect(busy).to_contain_text("testing 12 of 30")
    expect(busy).to_contain_text("4000000001")  # the whole seed
    expect(rows.last.locator("svg.spark polyline")).to_be_visible()
    assert page.locator("th", has_text="experiment").count() == 0  # the same everywhere
    shown = page.evaluate(
        """async () => {
          const [format, store] = await Promise.all(["format", "runs-store"].map((name) =>
            import(new URL(`static/lib/${name}.js`, document.baseURI))));
          return [...[9.97, 59.7, 119.6, 3599.7].map(format.seconds), format.spread(0.0229, 0.0555),
            store.shortId("Acrobot-v1-ppo-00-s2-20261117-081349-3f7a")];
        }"""
    )
    times = ["10 s", "1 min 00 s", "2 min 00 s", "1 h 00 min"]
    assert shown == [*times, "0.0229", "00-s2-20261117-081349-3f7a"]
    search = page.get_by_label("Filter the runs")
    # Esc empties the box together with the filter, and only then leaves it.
    search.fill("seed=1")
    expect(rows).to_have_count(2)
    search.press("Escape")
    expect(rows).to_have_count(9)
    expect(search).to_be_focused()
    assert "q=" not in page.url
    search.press("Escape")
    expect(search).not_to_be_focused()
    # An unknown field is named; suggestions prevent it.
    search.fill("polcy_lr<1")
    expect(page.get_by_role("alert")).to_contain_text("Did you mean policy_lr?")
    search.fill("policy_l")
    page.get_by_role("option", name="policy_lr=").click()
    page.get_by_role("option", name="policy_lr=0.0003").click()
    expect(rows).to_have_count(4)
    search.fill("")
    page.get_by_role("button", name="paper").click()
    expect(rows).to_have_count(1)
    assert "tag%3Dpaper" in page.url
    page.goto(page.url.partition("?")[0] + "runs/long-test")
    expect(page.locator(".facts").first).to_contain_text("testing 12 of 30")
    running.tell_activity("testing", 13, 30)
    expect(page.locator(".facts").first).to_contain_text("testing 13 of 30")


def test_groups_selection_views_and_the_palette(open_page: Open, runs: Path) -> None:
    page = open_page()
    rows = page.locator(ROWS)
    expect(rows).to_have_count(8)
    page.keyboard.press("f")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("solved 0/4")
    expect(rows.first).to_contain_text("301.5 IQM")
    rows.first.get_by_role("button", name="CartPole-v1:ppo").click()
    expect(rows).to_have_count(6)
    page.get_by_label("Select the 4 runs of CartPole-v1:ppo").last.check()
    page.keyboard.press("f")
    expect(page.get_by_text("4 selected")).to_be_visible()
    # It lasts: another page, back, a reload; and a filter may hide some of it.
    rows.first.get_by_role("link").click()
    expect(page.locator(".run-page")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("4 selected")).to_be_visible()
    page.reload()
    expect(page.get_by_text("4 selected")).to_be_visible()
    page.get_by_label("Filter the runs").fill("seed=0")
    expect(page.get_by_text("and 3 that the filter hides")).to_be_visible()
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Name of the view").fill("first seeds")
    page.get_by_role("button", name="Save").click()
    page.keyboard.press("Escape")
    page.get_by_label("Filter the runs").fill("")
    expect(rows).to_have_count(8)
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name="first seeds seed=0").click()
    expect(rows).to_have_count(2)
    # From anywhere to anywhere by the keyboard.
    page.get_by_label("Table of runs").focus()
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.get_by_role("heading", name="Experiments and sweeps")).to_be_visible()
    page.keyboard.press("Control+k")
    page.get_by_label("Go to a run").fill("cart-0.001-2")
    page.keyboard.press("Enter")
    expect(page.locator(".run-page")).to_be_visible()
    assert "cart-0.001-2" in page.url


HIDDEN_WITH_NOTICES = """() => {
  globalThis.notices = [];
  globalThis.Notification = class {
    static permission = "granted";
    static requestPermission = async () => "granted";
    constructor(title, options) { globalThis.notices.push(`${title}: ${options.body}`); }
  };
  Object.defineProperty(document, "hidden", { value: true });
}"""
"""A browser that allows notices, with the page in a hidden tab."""


def test_a_job_ends_with_a_message_and_buttons_outlive_a_restart(
    chromium: Any, runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    wait = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.05)"
    program = [sys.executable, "-c", wait]
    monkeypatch.setattr(local, "gsolve", lambda *words: [*program, *words])
    first = BackgroundServer(Settings(root=runs, port=0))
    page = chromium.new_page()
    page.goto(f"{first.settings.url}runs/cart-0.001-0")
    expect(page.get_by_text("More", exact=True)).to_be_visible()
    port = first.settings.port
    first.close()
    with BackgroundServer(Settings(root=runs, port=port)):
        page.get_by_text("More", exact=True).click()
        page.get_by_role("button", name="Evaluate…").click()
        page.get_by_role("button", name="Evaluate", exact=True).click()
        expect(page.locator(".job")).to_be_visible()  # it has another token now
        page.keyboard.press("Escape")
        page.goto(f"{first.settings.url}")
        expect(page.locator(".jobs-button .count")).to_have_text("1")
        page.locator(".jobs-button").click()
        expect(page.get_by_role("dialog", name="Jobs")).to_contain_text("Evaluate")
        page.evaluate(HIDDEN_WITH_NOTICES)
        page.get_by_role("button", name="Notify me").click()
        expect(page.get_by_role("button", name="Notify me")).to_have_attribute(
            "aria-pressed", "true"
        )
        end.touch()
        expect(page.locator(".toasts p")).to_contain_text("Evaluate", timeout=20_000)
        assert page.evaluate("globalThis.notices[0]").startswith("Ended: Evaluate")
        assert page.title().startswith("● ended")
        expect(page.locator(".jobs-button .count")).to_have_count(0)
        page.close()


def test_a_first_visit_offers_to_train(serve: Open, open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    server = serve(tmp_path / "none")
    page = open_page(url=server.settings.url)
    expect(page.get_by_role("button", name="Train CartPole")).to_be_enabled()
    page.goto(f"{server.settings.url}runs/nothing")
    expect(page.get_by_role("heading", name="nothing")).to_be_visible()
    page.wait_for_timeout(900)
    assert page.get_by_text("No connection").count() == 0
    page.close()
