"""The page in a real browser: its use by mouse, keyboard, phone and screen reader, and the requests that it sends."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import TOOK, Page
from tests.report.many import large_page
from tests.report.world import JOBS, MARKUP_CONTEXT, MARKUP_JOB

pytestmark = pytest.mark.if_changed("site")

TAB, ENTER, SPACE = "\ue004", "\ue007", " "
WIDTHS = {"phone": 360, "wide": 1280}
AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def url(report_file: Path) -> str:
    return report_file.as_uri()


# --- requests -----------------------------------------------------------------------------------


def test_page_requests_nothing_but_itself_when_it_is_used(page: Page, url: str) -> None:
    page.open(url).open_job("repairs-hourly")
    page.run("document.querySelector('#details summary').click()")

    assert [asked for asked in page.requests() if not asked.startswith("data:")] == [url]
    assert page.complaints() == []


def test_page_blocks_images_and_scripts_when_they_are_injected(page: Page, url: str) -> None:
    page.open(url)

    page.run("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
    page.run("const s = document.createElement('script'); s.textContent = 'window.hit = 1'; document.body.append(s)")

    assert page.run("return window.hit === undefined")
    assert sum("Content Security Policy" in said for said in page.complaints()) == 2


# --- names --------------------------------------------------------------------------------------


def test_markup_in_names_is_text_when_shown(page: Page, url: str) -> None:
    page.open(url).open_job(MARKUP_JOB)

    assert page.run("return document.getElementById('job-name').textContent") == MARKUP_JOB
    assert MARKUP_CONTEXT in page.run("return document.getElementById('details').textContent")
    assert page.run("return document.querySelectorAll('#details img, #details script').length") == 0
    assert page.complaints() == []


def test_overview_is_shown_when_the_name_of_the_link_is_malformed(page: Page, url: str) -> None:
    page.open(f"{url}#job=%E0%A4%A")

    assert page.run("return !document.getElementById('overview').hidden")
    assert page.complaints() == []


# --- finding ------------------------------------------------------------------------------------


def test_jobs_that_need_a_person_come_first_when_the_page_opens(page: Page, url: str) -> None:
    page.open(url)

    shown = page.visible_jobs()
    assert len(shown) == JOBS
    assert shown[:3] == ["waits-for-replay", "abandoned", "with-gap"]


def test_jobs_are_found_when_a_part_of_the_name_is_typed(page: Page, url: str) -> None:
    page.open(url)
    page.run("document.getElementById('find').focus()")

    page.press("RUN", "NING")

    assert page.visible_jobs() == ["running-now"]
    assert page.run("return document.getElementById('shown').textContent") == f"1 of {JOBS} jobs"


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ("waiting", ["waits-for-replay", "abandoned"]),
        ("failed", ["waits-for-replay", "abandoned"]),
        ("gaps", ["with-gap"]),
    ],
)
def test_jobs_of_one_kind_are_shown_when_its_button_is_pressed(
    page: Page, url: str, only: str, found: list[str]
) -> None:
    page.open(url)

    page.run(f"document.querySelector('[data-only={only}]').click()")

    assert page.visible_jobs() == found


def test_nothing_found_is_said_when_no_job_fits(page: Page, url: str) -> None:
    page.open(url)
    page.run("document.getElementById('find').focus()")

    page.press("nothing-like-it")

    assert page.visible_jobs() == []
    assert page.run("return document.getElementById('none').offsetParent !== null")


def test_jobs_change_order_when_a_heading_is_clicked_twice(page: Page, url: str) -> None:
    page.open(url)
    sort = "document.querySelector('[data-sort=name]').click()"

    page.run(sort)
    rising = page.visible_jobs()
    page.run(sort)

    assert rising == sorted(rising, key=str.lower)
    assert page.visible_jobs() == rising[::-1]
    assert page.run("return document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"


def test_jobs_without_a_lag_come_last_when_sorted_by_it(page: Page, url: str) -> None:
    page.open(url)

    page.run("document.querySelector('[data-sort=lag]').click()")

    lags = page.run("return [...document.querySelectorAll('#jobs tr')].map(r => r.dataset.lag)")
    known = [float(lag) for lag in lags if lag]
    assert lags[: len(known)] == [lag for lag in lags if lag]
    assert known == sorted(known, reverse=True)


def test_filter_and_order_come_back_when_the_address_is_opened_again(page: Page, url: str) -> None:
    page.open(url)
    page.run("document.querySelector('[data-only=waiting]').click()")
    page.run("document.querySelector('[data-sort=name]').click()")
    page.run("document.getElementById('find').focus()")
    page.press("a")
    chosen, address = page.visible_jobs(), page.run("return location.href")

    page.open(address)

    assert address.endswith("#find=a&only=waiting&sort=name")
    assert page.visible_jobs() == chosen == ["abandoned", "waits-for-replay"]
    assert page.run("return document.getElementById('find').value") == "a"
    assert page.run("return document.querySelector('[data-only=waiting]').getAttribute('aria-pressed')") == "true"
    page.open_job("abandoned").run("document.getElementById('back').click()")
    page.wait("return document.getElementById('job').hidden")
    assert page.visible_jobs() == chosen


def test_command_is_copied_when_its_button_is_pressed(page: Page, url: str) -> None:
    page.open(url)
    page.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    row = "document.querySelector('tr[data-name=waits-for-replay]')"

    page.run(f"{row}.querySelector('.copy').focus()")
    page.press(ENTER)

    page.wait(f"return {row}.querySelector('.copy').textContent.startsWith('Copied')")
    read = "navigator.clipboard.readText().then(arguments[arguments.length - 1])"
    assert page.driver.execute_async_script(read) == "watermarks plan waits-for-replay"


# --- one job ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job_id", "said"),
    [
        ("waits-for-replay", "Run the job again: it replays exactly this plan."),
        ("with-gap", "duty officer: the archive comes later"),
        ("repairs-hourly", "3 runs failed"),
    ],
)
def test_job_says_what_happened_and_what_to_do_when_opened(page: Page, url: str, job_id: str, said: str) -> None:
    page.open(url).open_job(job_id)

    assert said in " ".join(page.run("return document.getElementById('details').innerText").split())


def test_job_is_shown_at_once_when_its_address_is_opened(page: Page, url: str) -> None:
    page.open(f"{url}#job=parking%2Fpermits")

    page.wait("return document.querySelector('#details .say')")

    assert page.run("return document.getElementById('job-name').textContent") == "parking/permits"
    assert page.visible_jobs() == []


def test_overview_is_back_with_the_focus_on_the_job_when_the_browser_goes_back(page: Page, url: str) -> None:
    page.open(url).open_job("landing")

    page.driver.back()
    page.wait("return document.getElementById('job').hidden")

    assert len(page.visible_jobs()) == JOBS
    assert page.focused() == "landing"


def test_charts_have_a_table_that_says_the_same_when_opened(page: Page, url: str) -> None:
    page.open(url).open_job("repairs-hourly")
    page.run("document.querySelector('#details summary').click()")

    lines = "[...document.querySelectorAll('#details [data-in=all] tbody tr')]"
    rows = page.run(f"return {lines}.map(r => [...r.cells].map(c => c.textContent))")
    assert sum(int(row[1]) for row in rows) == 30
    assert sum(int(row[2]) for row in rows) == 3
    assert page.run("return document.querySelectorAll('[data-in=all] rect.bad').length") == 3


def test_values_of_a_period_are_told_when_the_pointer_or_the_focus_is_on_a_chart(page: Page, url: str) -> None:
    page.open(url).open_job("repairs-hourly")
    plot = "document.querySelector('[data-in=all] .plot[data-columns=\"3\"]')"
    told = f"return {plot}.querySelector('.read').textContent"
    rows = "document.querySelector('[data-in=all] .values').tBodies[0].rows"
    newest = page.run(f"return {rows}[0].cells[3].textContent") or "nothing known"

    page.run(f"{plot}.focus()")
    focused = page.run(told)
    page.press("\ue012")
    before = page.run(told)
    page.run(f"{plot}.blur()")
    page.run(
        f"""const chart = {plot}.querySelector('.chart'), box = chart.getBoundingClientRect();
        const at = {{bubbles: true, clientX: box.right - 1, clientY: box.top}};
        chart.dispatchEvent(new PointerEvent('pointermove', at))"""
    )

    assert focused.endswith(f" · Rows: {newest}")
    assert before != focused and " · Rows: " in before
    assert page.run(told) == focused


def test_whole_run_id_is_shown_when_its_beginning_is_clicked(page: Page, url: str) -> None:
    page.open(url).open_job("repairs-hourly")
    shown = "return document.querySelector('#details .whole').textContent"
    short = page.run(shown)

    page.run("document.querySelector('#details .whole').click()")

    assert short == "jr_000000000000…"
    assert page.run(shown) == f"jr_{29:064x}"


# --- a time range -------------------------------------------------------------------------------

CHOSEN = "return document.querySelector('#range input:checked').value"
SHOWN_RANGE = (
    "return [...document.querySelectorAll('#details [data-in]')].filter(e => e.offsetParent).map(e => e.dataset.in)"
)
LINES = "[...document.querySelectorAll('#details table[data-time] tbody tr')]"


def test_charts_figures_and_history_follow_when_a_time_range_is_chosen(page: Page, url: str) -> None:
    page.open(url).open_job("repairs-hourly")
    page.run("document.querySelector('[data-in=all] summary').click()")
    before = page.run(SHOWN_RANGE), page.run(f"return {LINES}.filter(r => r.offsetParent).length")

    page.run("document.querySelector('#range input[value=\"24h\"]').click()")
    page.wait("return document.querySelector('[data-in=\"24h\"] details').open")

    # In all: 30 hourly versions and 3 failures. In the last 24 hours: 24 versions, and all 3 failures.
    assert before == (["all"], 33)
    assert page.run(SHOWN_RANGE) == ["24h"]
    notes = page.run(
        "return [...document.querySelectorAll('#details p.soft')].filter(p => p.offsetParent).map(p => p.innerText)"
    )
    assert notes == ["Shown: 24 of 30, since 2026-03-16 22:39:00."]
    assert page.run(f"return {LINES}.filter(r => r.offsetParent).length") == 24 + 3
    assert "24 versions, 3 runs failed" in page.run("return document.getElementById('details').innerText")


def test_time_range_is_in_the_address_and_in_all_links_when_it_is_chosen(page: Page, url: str) -> None:
    page.open(url)
    page.run("document.querySelector('[data-only=gaps]').click()")
    page.run("document.querySelector('#range input[value=\"7d\"]').click()")
    listed = page.run("return location.hash")

    page.open_job("with-gap")
    opened, shown = page.run("return location.hash"), page.run(SHOWN_RANGE)
    page.run("document.querySelector('#range input[value=\"30d\"]').click()")
    changed = page.run("return location.hash")
    page.run("document.getElementById('back').click()")
    page.wait("return document.getElementById('job').hidden")

    assert listed == "#only=gaps&range=7d"
    assert (opened, shown, changed) == ("#job=with-gap&range=7d", ["7d"], "#job=with-gap&range=30d")
    assert page.run("return location.hash") == "#only=gaps&range=30d"
    assert page.visible_jobs() == ["with-gap"]


@pytest.mark.parametrize(
    ("address", "chosen"),
    [("#range=24h", "24h"), ("#job=landing&range=24h", "24h"), ("#range=9d", "all"), ("#job=landing", "all")],
)
def test_time_range_is_that_of_the_address_when_it_is_opened(page: Page, url: str, address: str, chosen: str) -> None:
    page.open(f"{url}{address}")
    if "job=" in address:
        page.wait("return document.querySelector('#details .say')")
        assert page.run(SHOWN_RANGE) == [chosen]

    assert page.run(CHOSEN) == chosen
    lines = "[...document.querySelectorAll('.spark path')].filter(e => getComputedStyle(e).display !== 'none')"
    assert page.run(f"return [...new Set({lines}.map(e => e.dataset.in))]") == [chosen]
    assert page.complaints() == []


def test_list_is_reached_from_a_job_when_its_address_was_opened(page: Page, url: str) -> None:
    page.open(f"{url}#job=landing&range=24h")
    page.wait("return document.querySelector('#details .say')")

    page.run("document.getElementById('back').click()")
    page.wait("return document.getElementById('job').hidden")

    assert len(page.visible_jobs()) == JOBS
    assert page.run("return location.hash") == "#range=24h"


def test_time_range_is_chosen_by_arrow_keys_when_it_has_the_focus(page: Page, url: str) -> None:
    page.open(url)
    page.press(TAB, TAB)

    page.press("\ue012")

    assert page.run(CHOSEN) == "30d"
    assert page.run("return location.hash") == "#range=30d"
    radios = [node["name"] for node in page.accessibility() if node["role"] == "radio"]
    assert radios == ["24 h", "7 d", "30 d", "all"]
    assert "Time range" in [node["name"] for node in page.accessibility() if node["role"] == "group"]
    assert page.run("return getComputedStyle(document.activeElement.nextElementSibling).outlineStyle") == "solid"


def test_screen_reader_hears_of_times_without_a_version_when_it_reads_a_chart(page: Page, url: str) -> None:
    page.open(f"{url}#job=landing&range=24h")
    page.wait("return document.querySelector('#details .say')")

    told = [
        f"{node['name']} {node['description']}" for node in page.accessibility() if node["role"] in ("image", "img")
    ]

    gap = "No version from 2026-03-16 22:39:00 to 2026-03-17 21:00:00, from 2026-03-17 22:00:00 to 2026-03-17 23:00:00."
    assert [gap in said for said in told] == [False, True, True]


# --- accessibility ------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)], ids=["phone-dark", "wide-light"])
@pytest.mark.parametrize("job_id", [None, "repairs-hourly"], ids=["overview", "job"])
def test_axe_finds_nothing_when_it_looks_at_the_page(
    page: Page, url: str, job_id: str | None, width: int, dark: bool
) -> None:
    page.open(url, dark=dark, width=width)
    if job_id:
        page.open_job(job_id)
        page.run("document.querySelector('#range input[value=\"7d\"]').click()")

    page.run(AXE)
    found = page.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")

    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]] == []
    assert {"color-contrast", "region", "td-headers-attr" if job_id else "label"} <= {
        rule["id"] for rule in found["passes"]
    }


@pytest.mark.parametrize("job_id", [None, "repairs-hourly", "with-gap", MARKUP_JOB])
def test_page_does_not_scroll_sideways_when_the_screen_is_a_phone(page: Page, url: str, job_id: str | None) -> None:
    page.open(url, width=360, height=780)
    if job_id:
        page.open_job(job_id)

    assert page.run("return document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_screen_reader_gets_landmarks_table_and_names_when_it_reads_the_overview(
    page: Page, url: str, width: int
) -> None:
    page.open(url, width=width)

    tree = page.accessibility()

    def names(role: str) -> list[str]:
        return [node["name"] for node in tree if node["role"] == role]

    assert {"banner", "main", "contentinfo", "search"} <= {node["role"] for node in tree}
    assert names("table") == ["All jobs with their state and why, lag, age, last version, owner, gaps and failed runs"]
    assert len(names("row")) >= JOBS
    assert MARKUP_JOB in names("rowheader")
    assert names("searchbox") == ["Find a job"]
    assert all(name for role in ("button", "link", "heading", "combobox") for name in names(role))


def test_screen_reader_gets_charts_in_words_when_it_reads_a_job(page: Page, url: str) -> None:
    page.open(url).open_job("repairs-hourly")

    charts = [(node["name"], node["description"]) for node in page.accessibility() if node["role"] in ("image", "img")]

    assert charts[0][0].startswith("Lag")
    assert any("30 versions, 3 runs failed" in f"{name} {description}" for name, description in charts)


def test_keyboard_reaches_everything_and_leaves_again_when_tab_is_pressed(page: Page, url: str) -> None:
    page.open(url)
    shown, reached = page.visible_jobs(), list[str]()

    for _ in range(60):
        page.press(TAB)
        reached.append(page.focused())
        if len(reached) > 1 and reached[-1] == reached[0]:
            break

    # Tab reaches only the chosen time range; the arrow keys reach the others.
    assert reached[:3] == ["Skip to the jobs", "range-all", "find"]
    assert reached[3].endswith("late")
    assert [name for name in reached if name in shown] == shown
    assert reached[-1] == reached[0]


def test_keyboard_opens_a_job_and_comes_back_when_enter_is_pressed(page: Page, url: str) -> None:
    page.open(url)
    page.run("[...document.querySelectorAll('#jobs a')].find(a => a.textContent === 'landing').focus()")

    page.press(ENTER)
    page.wait("return document.querySelector('#details .say')")
    opened = page.focused()
    page.run("document.getElementById('back').focus()")
    page.press(ENTER)
    page.wait("return document.getElementById('job').hidden")

    assert (opened, page.focused()) == ("landing", "landing")


@pytest.mark.parametrize(("dark", "paper"), [(False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 26)")])
def test_page_has_the_colours_of_the_system_when_it_opens(page: Page, url: str, dark: bool, paper: str) -> None:
    page.open(url, dark=dark)

    assert page.run("return getComputedStyle(document.documentElement).backgroundColor") == paper


def test_focus_can_be_seen_when_it_moves(page: Page, url: str) -> None:
    page.open(url)

    page.press(TAB, TAB, TAB)

    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_overview_works_when_there_is_no_script(page: Page, url: str) -> None:
    page.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(url)
        tree = page.accessibility()
    finally:
        page.cdp("Emulation.setScriptExecutionDisabled", value=False)

    assert "repairs-hourly" in [node["name"] for node in tree if node["role"] == "rowheader"]
    assert any("need JavaScript" in node["name"] for node in tree)


# --- many jobs ----------------------------------------------------------------------------------


def test_page_is_small_and_can_be_searched_when_there_are_500_jobs_of_1000_versions(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(large_page(), encoding="utf-8")

    page.open(path.as_uri())
    took = page.run(f"return {TOOK}")
    page.run("document.getElementById('find').focus()")
    page.press("parking-01")
    found: Any = page.visible_jobs()
    page.open_job("parking-0100")

    assert 5_000_000 < path.stat().st_size < 7_500_000
    assert took < 10_000
    assert len(found) == 20
    assert "The newest 40 versions of 1,000." in page.run("return document.getElementById('details').innerText")
    assert page.run("return document.querySelectorAll('*').length") < 20_000
    assert page.complaints() == []
