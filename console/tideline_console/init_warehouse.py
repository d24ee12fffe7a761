"""The warehouse of a new settings file: its folder, the tables' format, and that format's place."""

from __future__ import annotations

from typing import Any, Protocol

from tideline.contract.errors import Misconfigured
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.contract.target_url import BIGQUERY, FORMAT_NAMES, ICEBERG
from tideline.settings import Settings
from tideline.settings.iceberg import CATALOG_URLS, catalog_kind
from tideline_console.arguments import InitOptions

WAREHOUSE = "file:///var/lib/tideline/warehouse"


class Ask(Protocol):
    """Asks for a value, or takes it from the options.

    ``given``: from an option; ``usual``: where nothing is answered; ``option`` is the hint for what
    was not given and has no usual value.
    """

    def __call__(
        self, question: str, given: str | None, usual: str | None = None, *, option: str = ""
    ) -> str:
        """Return the value; Misconfigured where there is none."""


def warehouse_values(wanted: InitOptions, ask: Ask) -> dict[str, Any]:
    """Return the keys of the section; an option for a format's place is kept with any format, as
    tables can be moved to it."""
    values = {"url": ask("The folder of the tables", wanted.warehouse, WAREHOUSE)}
    formats = ", ".join(FORMAT_NAMES)
    form = ask(f"The format of the tables ({formats})", wanted.format, DEFAULT_FORMAT)
    if form not in FORMAT_NAMES:
        raise Misconfigured(f"there is no table format {form!r}", hint=f"name one of {formats}")
    if form != DEFAULT_FORMAT:
        values["format"] = form
    if form == ICEBERG or wanted.catalog is not None:
        option = f"--catalog, an url: {CATALOG_URLS}"
        url = ask(f"The catalog ({CATALOG_URLS})", wanted.catalog, option=option)
        kind = catalog_kind(url)
        if kind is None:
            raise Misconfigured("the catalog has no such url", hint=f"write {CATALOG_URLS}")
        values["iceberg.catalog"] = kind
        values["iceberg.url"] = url
        if wanted.catalog_user is not None:
            values["iceberg.user"] = wanted.catalog_user
    if form == BIGQUERY or wanted.project is not None:
        project = ask("The project", wanted.project, option="--project my-project")
        values["bigquery.project"] = project
        values["bigquery.location"] = ask("The location of datasets", wanted.location, "US")
    return values


def warehouse_steps(settings: Settings) -> list[str]:
    """Return the lines of what is to do for the tables' format before the next command."""
    place = settings.warehouse
    extras = [one for one in (ICEBERG, BIGQUERY) if one in settings.formats_held]
    extra = ",".join(extras)
    lines = (
        [f"  pip install 'tideline-cdc[{extra}]'     # where it is not installed"] if extras else []
    )
    if place.iceberg.user is not None:
        lines.append("  export TIDELINE_WAREHOUSE__ICEBERG__PASSWORD=…")
    return lines
