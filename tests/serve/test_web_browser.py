"""The pages in a real browser."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from gymnasium_solver.runs.manage import set_note
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.web.helper import Helper
from tests.serve.made_runs import log_row, made_run

Open = Callable[..., Any]
SCRIPT = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    return playwright_expect(locator)


ROWS = "table.runs tbody tr[aria-rowindex]"


# --- runs


def test_runs_are_listed_filtered_and_sorted_and_the_address_keeps_it(open_page: Open) -> None:
    page = open_page()
    expect(page.locator(ROWS)).to_have_count(8)
    search = page.get_by_label("Filter the runs")
    search.fill("policy_lr<0.0005")
    expect(page.locator(ROWS)).to_have_count(4)
    page.get_by_role("button", name="test", exact=True).click()
    expect(page.locator(ROWS).first).to_contain_text("303")
    page.get_by_role("button", name="test").click()
    expect(page.locator(ROWS).first).to_contain_text("300")
    page.reload()
    expect(page.locator(ROWS)).to_have_count(4)
    expect(page.locator(ROWS).first).to_contain_text("300")
    assert "policy_lr" in page.url
    search.fill("test>high")
    expect(page.get_by_role("alert")).to_contain_text("needs a number")
    search.fill("")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Search the columns").fill("policy_lr")
    page.get_by_label("policy_lr", exact=True).check()
    page.keyboard.press("Escape")
    expect(page.locator("table.runs th", has_text="policy_lr")).to_be_visible()
    expect(page.locator(ROWS, has_text="0.0003").first).to_be_visible()


@pytest.mark.slow
def test_a_thousand_runs_need_few_rows(open_page: Open, runs: Path) -> None:
    import shutil

    for i in range(300):
        shutil.copytree(runs / "cart-0.001-0", runs / f"many-{i:03}", symlinks=True)
    page = open_page()
    expect(page.locator("[data-total]")).to_have_attribute("data-total", "308")
    assert page.locator(ROWS).count() < 80
    page.locator(".table-box").evaluate("e => { e.scrollTop = 1e6; }")
    expect(page.locator(ROWS).last).to_have_attribute("aria-rowindex", "309")


def test_new_runs_and_tags_appear_by_themselves(open_page: Open, runs: Path) -> None:
    page = open_page()
    expect(page.locator(ROWS)).to_have_count(8)
    made_run(runs, "just-made", score=123.0)
    expect(page.locator(ROWS, has_text="just-made")).to_be_visible()
    page.locator(ROWS, has_text="just-made").get_by_role("checkbox").check()
    page.get_by_role("button", name="Tag…").click()
    page.get_by_label("New tags").fill("paper")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(ROWS, has_text="just-made")).to_contain_text("paper")


def test_the_keyboard_is_enough(open_page: Open) -> None:
    page = open_page()
    expect(page.locator(ROWS)).to_have_count(8)
    page.keyboard.press("/")
    expect(page.get_by_label("Filter the runs")).to_be_focused()
    page.keyboard.type("seed=0")
    expect(page.locator(ROWS)).to_have_count(2)
    page.keyboard.press("Enter")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Compare 2 runs in 2 groups")).to_be_visible()
    page.go_back()
    expect(page.locator(ROWS)).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".run-page")).to_be_visible()
    page.keyboard.press("]")
    expect(page.get_by_role("tab", name="Curves")).to_have_attribute("aria-selected", "true")


# --- one run


def test_a_run_updates_while_it_trains(open_page: Open, runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")
    run.update_meta(status="running", pid=os.getpid(), pid_started=None)
    page = open_page(f"runs/{run.id}")
    chart = page.get_by_role("figure")
    expect(chart).to_have_attribute("data-points", str(20 + 5 + 1))
    expect(page.locator(".live.live")).to_be_visible()
    log_row(run, 21, 500.0)
    run.log_text("epoch 21 is done")
    expect(chart).to_have_attribute("data-points", str(21 + 5 + 1))
    expect(page.locator(".log-tail")).to_contain_text("epoch 21 is done")
    run.update_meta(status="interrupted", stop_reason="interrupted", env_steps=21_000)
    expect(page.locator(".run-page")).to_have_attribute("data-status", "interrupted")
    run.close()


def test_alerts_are_marks_with_advice_and_the_config_shows_its_difference(open_page: Open) -> None:
    page = open_page("runs/cart-0.001-0")
    mark = page.get_by_role("button", name="entropy_collapse")
    assert "ent_coef: 0.01" in mark.get_attribute("title")
    mark.click()
    expect(page.get_by_text("Try: ent_coef: 0.01")).to_be_visible()
    page.get_by_role("tab", name="Config").click()
    expect(page.locator("tr.changed")).to_contain_text("policy_lr")
    page.get_by_role("tab", name="Curves").click()
    chart = page.locator("[data-metric='train/opt/loss/value'] .chart").last
    chart.scroll_into_view_if_needed()
    expect(chart).to_have_attribute("data-points", "20")
    page.get_by_label("Show the numbers of train/opt/loss/value").last.click()
    expect(page.locator(".numbers tbody tr")).to_have_count(20)
    page.get_by_label("Search the metrics").fill("loss/value")
    expect(page.locator("[data-metric]")).to_have_count(1)
    page.goto(f"{page.url.partition('?')[0]}?smooth=0.5&x=wall_s")
    expect(page.get_by_role("figure")).to_have_attribute("data-lines", "5")  # raw and smoothed


def test_what_can_be_done_to_a_run(open_page: Open, runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")
    config = run.config_path.read_text() + "ent_coef: 0.0\n"
    run.config_path.write_text(config)
    use = {"train/sys/cpus": 1.5, "train/sys/memory": 300.0, "train/sys/timing/fps_instant": 9.0}
    run.log_metrics({"env_steps": 21_000, "epoch": 21, "wall_s": 11.0} | use)
    run.update_meta(test=None, solved=None, stop_reason="goal_reached_eval")
    edit = {"changed": {"ent_coef": 0.0}, "before": {"ent_coef": 0.1}, "source": "gsolve set"}
    run.log_event("config", env_steps=9000, epoch=9, **edit)
    run.close()
    set_note(run, "# Why\n**wide** net, see https://example.org\n\n- <img src=x>")
    page = open_page(f"runs/{run.id}")
    facts = page.locator(".facts")
    expect(facts).to_contain_text("solved at a validation")
    expect(facts).to_contain_text("reached at a validation; not tested yet")
    note = page.locator(".markdown")
    expect(note.locator("h3")).to_have_text("Why")
    expect(note.locator("li")).to_have_text("<img src=x>")
    expect(note.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer")
    expect(page.locator("[data-part=usage] .chart")).to_have_count(3)
    expect(page.locator("[data-part=edits] li")).to_contain_text("at 9,000 ent_coef 0.1 → 0")
    expect(page.get_by_role("button", name="changed at 9,000")).to_be_visible()
    again = page.get_by_role("link", name="Start with ent_coef 0.01")
    expect(again).to_have_attribute("href", f"/start?config=run:{run.id}&f.ent_coef=0.01")
    page.get_by_role("tab", name="Evaluations").click()
    worst = page.get_by_role("link", name="Inspect worst")
    expect(worst).to_have_count(2)  # the checkpoint at 20,000 is kept, that at 4,000 is not
    assert "checkpoint=20000" in (worst.first.get_attribute("href") or "")
    more = page.locator(".run-actions .menu summary")
    more.click()
    page.get_by_role("button", name="Rename…").click()
    page.get_by_label("Name", exact=True).fill("first-try")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.locator(".run-head code")).to_have_text("first-try")
    assert (runs / "first-try" / "meta.json").is_file()
    more.click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.locator(ROWS)).to_have_count(7)
    assert not (runs / "first-try").exists()


def test_distributions_of_actions_values_and_returns(open_page: Open, runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")
    for epoch in (21, 22, 23):
        clock = {"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 1.0}
        shares = {f"train/roll/actions/hist/{i}": share for i, share in ((0, 0.25), (1, 0.75))}
        bands = {f"train/roll/{name}/{part}": 1.0 for name in ("baseline", "return")
                 for part in ("mean", "std")}  # fmt: skip
        errors = {f"train/opt/td_error/hist/{i:02}": 1 / 12 for i in range(12)}
        values = {f"train/opt/q/percentile/{p:02}": float(p) for p in (5, 25, 50, 75, 95)}
        run.log_metrics(clock | shares | bands | errors | values)
    for stage, steps in (("val", 21_000), ("val", 22_000), ("test", 23_000)):
        run.log_event("eval", stage=stage, env_steps=steps, returns=[1.0, 2.0, 2.0, 9.0])
    run.close()
    page = open_page(f"runs/{run.id}?tab=spread")
    heat = page.get_by_label("Share of each action")
    assert "0 25 %, 1 75 %" in heat.get_attribute("aria-label")
    painted = (
        """(c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(Boolean)"""
    )
    assert heat.evaluate(painted)
    assert page.get_by_label("Share of the TD errors").evaluate(painted)
    expect(page.get_by_label("Q-values of a batch")).to_have_attribute("data-lines", "2")
    expect(page.get_by_label("Values and the returns")).to_have_attribute("data-lines", "2")
    expect(page.locator(".bars i")).to_have_count(20)
    expect(page.locator(".bars i[title='1 to 1.4: 1 episodes']")).to_have_count(1)
    expect(page.get_by_label("Quantiles of the returns")).to_have_attribute("data-points", "4")
    other = Run(runs / "cart-0.001-1")
    other.log_event("eval", stage="test", env_steps=9_000, returns=[500.0] * 100)
    other.close()
    page.goto(page.url.replace(run.id, other.id))
    expect(page.locator("[data-spread=test]")).to_contain_text("all 100: 500")


@pytest.mark.slow
def test_an_archived_run_is_restored_in_the_page(open_page: Open) -> None:
    page = open_page()
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator(ROWS, has_text="cart-0.001-0").get_by_role("checkbox").check()
    page.get_by_role("button", name="Archive…").click()
    expect(page.locator(ROWS)).to_have_count(7)
    page.get_by_role("button", name="Archived").click()
    page.get_by_label("Select cart-0.001-0").check()
    page.get_by_role("button", name="Restore 1").click()
    expect(page.locator(ROWS)).to_have_count(8)
    expect(page.get_by_text("No run is archived")).to_be_visible()


# --- compare


@pytest.mark.slow
def test_groups_are_named_and_filled_by_hand_and_the_address_keeps_them(
    open_page: Open, runs: Path
) -> None:
    ids = ",".join(sorted(path.name for path in runs.iterdir() if path.name.startswith("cart")))
    page = open_page(f"compare?runs={ids}")
    expect(page.locator(".compare-page")).to_have_attribute("data-groups", "2")
    page.get_by_label("group by").select_option("hand")
    page.get_by_label("Name of group 1").fill("slow learner")
    page.get_by_label("Name of group 1").press("Enter")
    page.get_by_role("button", name="New group").click()
    first, third = page.locator("[data-group='0'] li"), page.locator("[data-group='2']")
    expect(first).to_have_count(4)
    first.first.drag_to(third)  # by the pointer
    expect(third.locator("li")).to_have_count(1)
    page.get_by_label("Group of cart-0.0003-3").select_option("-")  # by the keyboard
    expect(first).to_have_count(2)
    page.get_by_label("Runs that match", exact=True).fill("policy_lr=0.001 seed<2")
    page.get_by_label("Group for the runs that match").select_option("2")
    page.get_by_role("button", name="Move", exact=True).click()
    expect(third.locator("li")).to_have_count(3)
    expect(page.locator(".compare-page")).to_have_attribute("data-groups", "3")
    page.reload()
    expect(page.locator(".compare-page")).to_have_attribute("data-groups", "3")
    expect(page.get_by_label("Name of group 1")).to_have_value("slow learner")
    expect(page.locator("table.scores")).to_contain_text("slow learner")
    page.get_by_role("button", name="Remove the group slow learner").click()
    expect(page.locator(".compare-page")).to_have_attribute("data-groups", "2")
    expect(page.locator(".hand-group.out li")).to_have_count(3)


def test_groups_of_seeds_with_a_verdict(open_page: Open, runs: Path) -> None:
    ids = ",".join(path.name for path in sorted(runs.iterdir()) if path.name.startswith("cart"))
    page = open_page(f"compare?runs={ids}")
    expect(page.locator(".compare-page")).to_have_attribute("data-groups", "2")
    figure = page.get_by_label("val/roll/ep_rew/mean in CartPole-v1")
    expect(figure).to_have_attribute("data-lines", str(8 + 2))
    expect(page.get_by_text("better by 18")).to_be_visible()
    expect(page.locator(".legend button").first).to_have_text("policy_lr=0.0003  n = 4")
    loss = page.locator("[data-metric='train/opt/loss/value']")  # small multiples
    loss.scroll_into_view_if_needed()
    expect(loss.get_by_role("figure")).to_have_attribute("data-lines", str(8 + 2))
    for kind in ("PNG", "SVG", "CSV"):
        with page.expect_download() as saved:
            page.get_by_role("button", name=kind, exact=True).click()
        data = Path(saved.value.path()).read_bytes()
        assert data.startswith({"PNG": b"\x89PNG", "SVG": b"<svg", "CSV": b"group,"}[kind])
        assert len(data) > 1000
    page.get_by_role("checkbox", name="seeds").uncheck()
    expect(figure).to_have_attribute("data-lines", "2")
    page.get_by_role("button", name="log y").click()
    expect(page.get_by_role("button", name="log y")).to_have_attribute("aria-pressed", "true")
    page.get_by_text("Fields of the single runs").click()
    expect(page.get_by_role("cell", name="policy_lr").last).to_be_visible()
    page.get_by_text("Scatter of the runs").click()
    expect(page.locator(".plot circle")).to_have_count(8)
    assert "sx=policy_lr" in page.url


def test_a_tooltip_has_the_value_of_its_own_x_and_nan_is_said(open_page: Open, runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")  # evaluated at 4,000, 8,000, ... 20,000
    name = "train/opt/loss/value"
    for epoch in (21, 22, 30):
        nan = {name: float("nan")}
        run.log_metrics({"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 1.0} | nan)
    run.close()
    page = open_page(f"runs/{run.id}?tab=curves")
    panel = page.locator("[data-metric='val/roll/ep_rew/mean']").first
    loss = page.locator(f"[data-metric='{name}']").first
    expect(loss.locator("header")).to_contain_text("NaN since 21k")
    chart = panel.locator(".u-over")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * 0.33, "y": 40})  # 6,600: between two evaluations
    expect(panel.locator(".tip")).to_contain_text("8,000 env steps")
    expect(panel.locator(".tip")).to_contain_text("192")
    expect(page.locator(".tip")).to_have_count(1)  # linked panels show values in their heads
    page.goto(f"{page.url.partition('runs/')[0]}compare?runs={run.id},cart-0.001-1&by=run&x=epoch")
    chart = page.locator(".block .u-over").first
    expect(chart).to_be_visible()


def test_more_runs_than_one_comparison_takes(open_page: Open) -> None:
    ids = [f"cart-0.001-{i % 4}" for i in range(250)]
    page = open_page(f"compare?runs={','.join(ids)}")
    expect(page.get_by_text("the newest 200 of 250 runs")).to_be_visible()
    page.goto(f"{page.url.partition('compare')[0]}compare?filter=seed<2")
    expect(page.locator(".compare-page")).to_have_attribute("data-groups", "2")
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 4 runs in 2 groups")


# --- start


def test_the_form_is_checked_while_typing(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(self: Helper, question: dict[str, Any]) -> dict[str, Any]:
        if question["fields"].get("gamma") == "2":
            return {"ok": False, "error": "CartPole-v1:ppo:\n  gamma: got 2, expected <= 1"}
        doc = {"name": "gamma", "doc": "Discount factor.", "kind": "number", "choices": []}
        groups = [{"title": "optimisation", "fields": [doc | {"is_default": False}]}]
        return {"ok": True, "values": {"gamma": 0.98}, "groups": groups, "description": ""}

    monkeypatch.setattr(Helper, "ask", ask)
    page = open_page("start")
    page.get_by_label("Search the configs").fill("cartpole ppo")
    page.get_by_role("link", name="CartPole-v1:ppo", exact=True).click()
    start = page.get_by_role("button", name="Start training")
    expect(start).to_be_enabled()
    gamma = page.get_by_label("gamma", exact=True)
    expect(gamma).to_have_value("0.98")
    gamma.fill("2")
    expect(page.get_by_text("got 2, expected <= 1")).to_be_visible()
    expect(start).to_be_disabled()
    gamma.fill("0.9")
    expect(start).to_be_enabled()
    expect(page.get_by_text("gsolve train CartPole-v1:ppo --gamma 0.9")).to_be_visible()


# --- malice, themes, widths, access


def test_text_of_a_run_is_never_html(open_page: Open, runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")
    run.update_meta(
        env_id=SCRIPT, variant=SCRIPT, stop_detail=SCRIPT, changed={SCRIPT: [SCRIPT, 1]}
    )
    run.log_metrics({"env_steps": 30_000, SCRIPT: 1.0, f"val/{SCRIPT}/x": 2.0})
    run.log_event("alert", name=SCRIPT, text=SCRIPT, meaning=SCRIPT, advice=SCRIPT, env_steps=3000)
    run.log_text(SCRIPT)
    run.close()
    run.labels_path.write_text('{"tags": ["<b>x</b>"], "note": "<img src=x onerror=alert(1)>"}')
    config = run.config_path.read_text() + "description: '<script>document.title=1</script>'\n"
    run.config_path.write_text(config)
    page = open_page("?cols=status,run,tags,note,description")
    expect(page.locator(ROWS, has_text="<script>").first).to_be_visible()
    expect(page.locator(ROWS, has_text="<b>x</b>")).to_be_visible()
    start = page.url.partition("?")[0]
    for path in (f"runs/{run.id}", f"runs/{run.id}?tab=curves", f"runs/{run.id}?tab=config",
                 f"runs/{run.id}?tab=log", f"compare?runs={run.id},cart-0.001-1"):  # fmt: skip
        page.goto(f"{start}{path}")
        expect(page.get_by_text("<script>").locator("visible=true").first).to_be_visible()
        assert page.locator("main img, main script").count() == 0
        assert page.title() != "pwned"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_page_is_accessible(open_page: Open, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    ids = "cart-0.001-0,cart-0.001-1,cart-0.001-2,cart-0.0003-0"
    paths = {
        "": ROWS, "runs/cart-0.001-0": ".chart canvas", f"compare?runs={ids}": ".chart canvas",
        "runs/cart-0.001-0?tab=curves": ".chart canvas",
        "runs/cart-0.001-0?tab=spread": ".spread .panel",
        "runs/cart-0.001-0?tab=config": "table.config", "start": ".config-card",
        "runs/cart-0.001-0?tab=evaluations": ".evaluations", "inspect": ".in-pick",
    }  # fmt: skip
    page = open_page(color_scheme=scheme)
    start = page.url
    for path, ready in paths.items():
        page.goto(f"{start}{path}")
        expect(page.locator(ready).first).to_be_visible()
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        told = [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in serious]
        assert not told, (path, told)


def test_the_theme_follows_the_system_and_a_choice_lasts(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    back = "e => getComputedStyle(e).backgroundColor"
    dark = page.locator("body").evaluate(back)
    page.get_by_label("Switch to the light theme").click()
    light = page.locator("body").evaluate(back)
    assert dark != light
    page.reload()
    expect(page.locator(ROWS)).to_have_count(8)
    assert page.locator("body").evaluate(back) == light


AT_ITS_END = """link => { const box = link.getBoundingClientRect();
    return document.elementFromPoint(box.right - 2, (box.top + box.bottom) / 2) === link; }"""


def test_a_phone_scrolls_in_one_direction(open_page: Open, runs: Path) -> None:
    long = "a" * 128
    (runs / "cart-0.001-1").rename(runs / long)
    page = open_page(viewport={"width": 390, "height": 800})
    start = page.url
    for path, ready in {
        "": ROWS, f"runs/{long}": ".chart canvas", "start": ".config-card",
        "compare?runs=cart-0.001-0,cart-0.0003-0": ".chart canvas",
    }.items():  # fmt: skip
        page.goto(f"{start}{path}")
        expect(page.locator(ready).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        for link in page.locator(".bar nav a").all():  # whole, and not under something else
            assert link.evaluate(AT_ITS_END), (path, link.inner_text())


# --- loading


def test_a_page_names_all_its_modules(chromium: Any, server: Any) -> None:
    """One that is not named is fetched late, after the modules that import it."""
    asked: list[str] = []
    page = chromium.new_page()
    page.on("request", lambda request: asked.append(request.url))
    for path in ("", "runs/cart-0.001-0", "compare", "experiments"):
        asked.clear()
        page.goto(f"{server.settings.url}{path}")
        expect(page.locator("main h1").first).to_be_visible()
        links = "[...document.querySelectorAll('[rel=modulepreload]')].map(a => a.href)"
        scripts = ("/theme-boot.js", "/first.js")
        modules = {url for url in asked if url.endswith(".js") and not url.endswith(scripts)}
        assert modules == set(page.evaluate(links)), path
    page.close()


# --- rights


def test_read_only_has_no_buttons_that_change(serve: Open, runs: Path, open_page: Open) -> None:
    server = serve(runs, read_only=True)
    page = open_page(url=f"{server.settings.url}runs/cart-0.001-0")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.get_by_role("button", name="Evaluate…").count() == 0
    expect(page.get_by_text("read-only")).to_be_visible()
    page.close()


def test_the_token_opens_the_page_once_and_a_cookie_keeps_it_open(
    chromium: Any, serve: Open, runs: Path
) -> None:
    server = serve(runs, require_token=True)
    page = chromium.new_page()
    page.goto(server.settings.url.partition("#")[0])
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("about:blank")
    page.goto(server.settings.url)
    expect(page.locator(ROWS)).to_have_count(8)
    assert "token" not in page.url
    page.reload()
    expect(page.locator(ROWS)).to_have_count(8)
    page.close()


def test_it_works_below_a_base_path(chromium: Any, serve: Open, runs: Path) -> None:
    server = serve(runs, base_path="/solver")
    page = chromium.new_page()
    page.goto(server.settings.url)
    page.locator(ROWS).first.get_by_role("link").click()
    expect(page.locator(".chart canvas").first).to_be_visible()
    assert "/solver/runs/" in page.url
    page.reload()
    expect(page.locator(".chart canvas").first).to_be_visible()
    page.close()


# --- report


def test_a_report_opens_from_the_disk_without_requests(
    open_page: Open, chromium: Any, tmp_path: Path
) -> None:
    page = open_page()
    expect(page.locator(ROWS)).to_have_count(8)
    page.keyboard.press("a")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Report").click()
    path = tmp_path / "report.html"
    saved.value.save_as(path)
    asked: list[str] = []
    page = chromium.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", name="8 runs")).to_be_visible()
    expect(page.get_by_text("better by 18")).to_be_visible()
    assert page.locator("svg polyline").count() >= 8
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()
