"""Airflow's own pages in a Chromium: the forms of DAGs filled in and sent as a person does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

from devtools.services.airflow import USER, AirflowServices
from devtools.services.chromium import FLAGS

MONTH = re.compile(r"^[A-Z][a-z]{2} \d{4}$")
LOADED_S = 120.0
"""How long a page may take on a machine that merges beside it."""

Values = Mapping[str, str | bool]
"""What is put into a form, by the names of the DAG's params: text, lines, a choice, a switch."""


class AirflowPages:
    """One browser, logged in; pages that matter are kept in ``screenshots`` as ``NN-WHAT.png``."""

    def __init__(self, page: Page, airflow: AirflowServices, screenshots: Path) -> None:
        self._page = page
        self._airflow = airflow
        self._screenshots = screenshots
        self._taken = 0

    def log_in(self) -> None:
        self._page.goto(self._airflow.url)
        self._page.get_by_label("Username").fill(USER)
        self._page.get_by_label("Password").fill(self._airflow.password)
        self._page.get_by_role("button", name="Sign in").click()
        self._page.wait_for_url(lambda url: "/auth/login" not in url)
        # Before it has what the login gave it the page sends who goes on back to the login.
        self._page.wait_for_load_state("networkidle")

    def trigger(self, dag_id: str, values: Values) -> str:
        """Fill in the DAG's form and press *Trigger*; the id of the run that it began."""
        before = set(self._airflow.api.runs(dag_id))
        dialog = self._opened(dag_id)
        self._fill(dialog, values)
        self._send(dialog, "Trigger", dag_id)
        [run_id] = set(self._airflow.api.runs(dag_id, run_type="manual")) - before
        return run_id

    def backfill(self, dag_id: str, first: date, last: date, values: Values) -> list[str]:
        """Have Airflow's own dialog run the intervals of days; the ids of its runs."""
        before = set(self._airflow.api.runs(dag_id))
        dialog = self._opened(dag_id)
        dialog.get_by_text("Run this Dag for a range of dates").click()
        for label, day in (("From", first), ("To", last)):
            self._pick(dialog, label, day)
        # Airflow passes on no param without it, to new runs neither.
        dialog.get_by_text("Override parameters on existing runs", exact=True).click()
        self._fill(dialog, values)
        self._send(dialog, "Run Backfill", dag_id)
        return sorted(set(self._airflow.api.runs(dag_id, run_type="backfill")) - before)

    def log(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """The lines of a task's log as its page shows them: what is folded is not among them."""
        self._page.goto(f"{self._airflow.url}/dags/{dag_id}/runs/{run_id}/tasks/{task_id}")
        lines = self._page.get_by_test_id("virtualized-list")
        lines.wait_for()
        self._page.wait_for_load_state("networkidle")
        self._screenshot(f"{dag_id}-{task_id}-log")
        return lines.inner_text().splitlines()

    def _opened(self, dag_id: str) -> Locator:
        self._page.goto(f"{self._airflow.url}/dags/{dag_id}")
        self._page.get_by_test_id("trigger-dag-button").click()
        dialog = self._page.locator("[data-scope=dialog][data-part=content]")
        dialog.get_by_text("Advanced Options").wait_for()
        return dialog

    def _send(self, dialog: Locator, button: str, dag_id: str) -> None:
        self._screenshot(f"{dag_id}-filled")
        dialog.get_by_role("button", name=button, exact=True).click()
        dialog.wait_for(state="hidden")

    def _fill(self, dialog: Locator, values: Values) -> None:
        for name, value in values.items():
            named = self._page.locator(f'[id="element_{name}"], [id$=":element_{name}"]')
            field = dialog.locator(named).first
            section = dialog.locator("[data-scope=accordion][data-part=item]", has=named)
            closed = section.locator("[data-part=item-trigger][aria-expanded=false]")
            if closed.count():
                closed.click()
            if isinstance(value, bool):
                field.set_checked(value)
            elif field.get_by_role("combobox").count():
                field.get_by_role("combobox").fill(value)
                field.get_by_role("option", name=value, exact=True).click()
            elif field.get_by_role("spinbutton").count():
                field.get_by_role("spinbutton").fill(value)
            else:
                field.fill(value)

    def _pick(self, dialog: Locator, label: str, day: date) -> None:
        """One end of a range, in the past, as midnight: leafed back to in the picker's calendar."""
        named = self._page.get_by_text(label, exact=True)
        field = dialog.locator("[data-scope=field][data-part=root]", has=named)
        field.get_by_text("Select date and time").click()
        picker = self._page.locator("[data-scope=popover][data-part=content][data-state=open]")
        month = picker.get_by_text(MONTH)
        while month.inner_text() != f"{day:%b %Y}":
            month.locator("xpath=preceding-sibling::button").click()
        # Days of the next month, which follow, have the same numbers.
        picker.get_by_role("button", name=str(day.day), exact=True).first.click()
        picker.get_by_placeholder("HH:mm").fill("00:00")
        self._screenshot(f"picker-{label}")
        self._page.keyboard.press("Escape")
        picker.wait_for(state="hidden")

    def _screenshot(self, what: str) -> None:
        self._taken += 1
        self._page.screenshot(path=self._screenshots / f"{self._taken:02}-{what}.png")


@contextmanager
def airflow_pages(
    airflow: AirflowServices, chromium: Path, screenshots: Path
) -> Iterator[AirflowPages]:
    """A new Chromium with a profile of its own, logged in."""
    screenshots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        page.set_default_timeout(LOADED_S * 1_000)
        page.set_default_navigation_timeout(LOADED_S * 1_000)
        pages = AirflowPages(page, airflow, screenshots)
        try:
            pages.log_in()
            yield pages
        except BaseException:
            page.screenshot(path=screenshots / "99-failed.png")
            raise
        finally:
            browser.close()
