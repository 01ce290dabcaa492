"""The pages in a real Chromium, over real runs; and a plan that is started, watched, stopped and
resumed to its end.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from importlib import resources

import pytest

from dpfl.privacy.statement import rounded_up
from dpfl.run.records.folder import RunFolder
from dpfl.web.run_line import line_of
from tests.conftest import PATIENCE
from tests.web.conftest import FLAGS, HOSTILE, HOW, Site, chromium

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

pytestmark = [pytest.mark.xdist_group("web"), pytest.mark.skipif(chromium() is None, reason=HOW)]

PAGES = [
    "/",
    "/run?name=private-seed0",
    "/run?name=plain",
    "/compare?name=private-seed0&name=private-seed1&name=plain",
    "/plan",
    "/systems",
    "/systems?name=ali-dpfl",
    "/privacy",
    "/privacy?name=private-seed0&owner=client-00001",
    "/run?name=hospitals/run",
]
PHONE = 390
SLOW = 1000 * PATIENCE
"""Milliseconds: only a hang takes as long."""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    expect.set_options(timeout=SLOW)
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def page(browser, site: Site) -> Iterator[object]:
    """One page for all: whatever its console complains of fails the test that made it."""
    context = browser.new_context(base_url=site.address, viewport={"width": 1200, "height": 850})
    context.set_default_timeout(SLOW)
    found = context.new_page()
    found.complaints = []
    found.on(
        "console",
        lambda said: (
            found.complaints.append(said.text) if said.type in ("error", "warning") else None
        ),
    )
    found.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.on("dialog", lambda dialog: (found.complaints.append(dialog.message), dialog.dismiss()))
    yield found
    context.close()


@pytest.fixture(autouse=True)
def calm(request: pytest.FixtureRequest) -> Iterator[None]:
    page = request.getfixturevalue("page")
    page.complaints.clear()
    yield
    assert page.complaints == []


def opened(page, path: str):
    page.goto(path)
    page.wait_for_selector("#page[data-ready]")
    return page


def test_the_list_is_searched_and_sorted(page) -> None:
    opened(page, "/")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(6)
    expect(page.get_by_text(HOSTILE, exact=True)).to_be_visible()
    expect(page.get_by_text("it may be half written")).to_be_visible()
    page.get_by_label("Search runs").fill("private")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(rows.first).to_contain_text("private-seed1")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(rows.first).to_contain_text("private-seed0")
    page.get_by_label("Search runs").fill("no such run")
    expect(page.get_by_text("No run matches")).to_be_visible()


def test_two_runs_are_compared_from_the_list(page) -> None:
    opened(page, "/")
    page.get_by_label("Compare private-seed0").check()
    page.get_by_label("Compare plain").check()
    page.get_by_role("link", name="Compare 2").click()
    page.wait_for_selector("#page[data-ready]")
    expect(page.get_by_role("region", name="Runs side by side").locator("tbody tr")).to_have_count(
        2
    )
    expect(page.get_by_text("only rows of equal epsilon are a fair comparison")).to_be_visible()
    expect(page.get_by_role("cell", name="nobody")).to_be_visible()
    page.get_by_label("private-seed1").check()
    expect(page.get_by_role("cell", name="private (2 seeds)")).to_be_visible()
    expect(
        page.get_by_text("Bands are 95 % intervals of the mean over seeds").first
    ).to_be_visible()
    expect(page.locator("figure canvas")).to_have_count(4)


def test_of_a_run_that_ended_the_page_says_when_and_all_of_its_statement(page, site: Site) -> None:
    line = line_of(RunFolder(site.runs / "private-seed0"), "private-seed0")
    spent = f"{rounded_up(line['epsilon']):.4f}"
    opened(page, "/")
    expect(page.locator("tr", has_text="private-seed0").locator(".meter")).to_have_text(
        f"{spent} of 20"
    )
    opened(page, "/run?name=private-seed0")
    expect(page.locator(".meter.large strong")).to_have_text(spent)
    expect(page.get_by_text("not safe for real data")).to_be_visible()
    expect(
        page.get_by_text(f"ended {line['ended'][:10]} {line['ended'][11:16]} UTC")
    ).to_be_visible()
    expect(page.locator("figcaption", has_text=" now")).to_have_count(0)
    expect(page.locator("figcaption", has_text="at the end")).to_have_count(2)


def test_a_page_that_nobody_sees_keeps_no_connection(page, site: Site) -> None:
    """A browser has six to a server: with a stream each, the seventh page would never load."""
    shutil.copytree(site.runs / "plain", site.runs / "watched")
    folder = RunFolder(site.runs / "watched")
    folder.file("result.json").unlink()
    seen = (
        "(hidden) => { Object.defineProperty(document, 'hidden',"
        " { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    with folder.lock():
        opened(page, "/run?name=watched")
        expect(page.locator(".badge").first).to_have_text("running")
        with page.expect_event("requestfailed", lambda request: "/api/events" in request.url):
            page.evaluate(seen, True)
        with page.expect_request("**/api/events*"):
            page.evaluate(seen, False)
    expect(page.locator(".badge").first).to_have_text("stopped")
    opened(page, "/")  # before its run is gone: it reads it once more
    shutil.rmtree(folder.path)


def test_the_officer_reads_a_ledger_and_verifies(page) -> None:
    opened(page, "/privacy")
    page.get_by_role("region", name="Runs").get_by_role("link", name="private-seed0").click()
    page.wait_for_selector("#page[data-ready]")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("The certificate is valid")).to_be_visible()
    page.get_by_role("link", name="client-00002").click()
    expect(page.get_by_role("heading", name="Account of client-00002")).to_be_visible()
    expect(page.get_by_text("Each row contains the hash of the row before it")).to_be_visible()
    opened(page, "/privacy?name=hospitals/run")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("The certificate is valid")).to_be_visible()
    expect(page.locator(".checks tr", has_text="node-0")).to_contain_text("for this run")
    nodes = page.get_by_role("region", name="Nodes").locator("tbody tr")
    told = ("node-0joined.* of 8", "node-1joined", "node-2takes no part: .*budget")
    expect(nodes).to_have_text([re.compile(words) for words in told])
    opened(page, "/privacy?name=plain")
    expect(page.get_by_text("No guarantee", exact=True)).to_be_visible()


def test_hostile_names_are_text(page) -> None:
    from urllib.parse import quote

    opened(page, f"/run?name={quote(HOSTILE)}")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    assert page.locator("main img").count() == 0
    page.goto(f"/report?name={quote(HOSTILE)}")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    assert page.locator("main img").count() == 0


def test_a_plan_is_moved_started_watched_stopped_and_resumed(page, site: Site) -> None:
    opened(page, "/plan")
    expect(page.get_by_text("computed by the accountant", exact=True)).to_be_visible()
    before = page.locator(".say").inner_text()
    page.get_by_label("Epsilon, slider").focus()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("a first estimate, may still change")).to_be_visible()
    expect(page.locator(".say")).not_to_have_text(before)
    page.get_by_label("Rounds", exact=True).fill("300")
    page.get_by_label("Clients", exact=True).fill("4")
    page.get_by_label("Model").select_option("linear")
    expect(page.locator("#page")).to_have_attribute("data-exact", "true")
    expect(page.locator(".say")).to_contain_text("300 rounds")
    page.get_by_label("Name of the run").fill("planned")
    page.get_by_role("button", name="Start this run").click()
    page.wait_for_url("**/run?name=planned")
    state = page.locator(".badge").first
    page.get_by_role("button", name="Pause").click()
    expect(state).to_have_text("paused")
    page.get_by_role("button", name="Stop").click()
    expect(state).to_have_text("stopped")
    assert not (site.runs / "planned" / "result.json").exists()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").click()
    expect(state).to_have_text("paused")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".tile", has_text="Rounds")).to_contain_text(
        re.compile(r"Rounds[1-9]\d* of 300")
    )
    expect(state).to_have_text("finished")
    expect(page.locator(".tile", has_text="Rounds")).to_contain_text("300 of 300")
    expect(page.get_by_text("Proven under a condition")).to_be_visible()
    expect(page.locator("#charts canvas")).to_have_count(5)


def test_a_run_deleted_under_its_page_is_gone(page, site: Site) -> None:
    shutil.copytree(site.runs / "plain", site.runs / "doomed")
    (site.runs / "doomed" / "result.json").unlink()
    answers = itertools.count()
    with page.expect_response(
        lambda answer: "/api/run?" in answer.url and next(answers) == 1
    ):  # it reads a stopped run twice
        opened(page, "/run?name=doomed")
    expect(page.locator(".badge").first).to_have_text("stopped")
    shutil.rmtree(site.runs / "doomed")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("There is no run")).to_be_visible()
    assert len(page.complaints) == 1  # that the answer was 400
    page.complaints.clear()


def test_a_run_deleted_while_its_page_reads_it_again_is_gone(page, site: Site) -> None:
    doomed = site.runs / "doomed"
    shutil.copytree(site.runs / "plain", doomed)
    (doomed / "result.json").unlink()
    readings = itertools.count()

    def between(route) -> None:  # a stopped run is read twice: at once, and when its stream is over
        if next(readings) == 1:
            shutil.rmtree(doomed)
        route.continue_()

    page.route("**/api/run?*", between)
    opened(page, "/run?name=doomed")
    expect(page.get_by_role("heading", name="This run is gone")).to_be_visible()
    expect(page.get_by_text("There is no run")).to_be_visible()
    page.unroute("**/api/run?*")
    assert len(page.complaints) == 1  # that the answer was 400
    page.complaints.clear()


def test_the_keyboard_is_enough(page) -> None:
    opened(page, "/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "plain":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/run?name=plain")
    expect(page.get_by_role("heading", level=1)).to_have_text("plain")


AXE = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => one.id + ": " + one.nodes.map((node) => node.html).join(" "))"""


OVER = """() => [...document.querySelectorAll("body *")].filter((one) => {
    const box = one.getBoundingClientRect(), cut = getComputedStyle(one).overflowX !== "visible";
    return box.width && box.height && !one.closest(".skip, .stack thead")
      && (box.right > innerWidth + 1 || box.left < -1 || (cut && one.scrollWidth > one.clientWidth + 1));
  }).map((one) => one.outerHTML.slice(0, 120))"""  # noqa: E501
"""Whatever a page shows outside of its window, or one must scroll sideways to."""


@pytest.mark.parametrize(
    "path", ["/report?name=private-seed0&name=plain", "/certificate?name=private-seed0"]
)
def test_what_is_made_to_be_printed_fits_a_phone(page, path: str) -> None:
    page.set_viewport_size({"width": PHONE, "height": 850})
    page.goto(path)
    assert page.evaluate(OVER) == []


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_for_everybody_on_a_phone_and_in_the_dark(page, path: str) -> None:
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    for width, scheme in ((PHONE, "dark"), (1200, "light")):
        page.set_viewport_size({"width": width, "height": 850})
        page.emulate_media(color_scheme=scheme)
        opened(page, path)
        assert page.evaluate(OVER) == [] or width != PHONE
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate(axe)
        assert page.evaluate(AXE) == []
