"""OpenLineage events of merge runs, for whoever keeps track of lineage (section ``openlineage``).

A run of a plan is a run of the job ``{pipeline}.merge``: START before, COMPLETE or FAIL after it,
with the source's tables as inputs and the warehouse's as outputs. Events hold names, types and
counts, never a row's value or a secret. Nobody who listens is no failure of a merge: what is not
delivered is counted and named.

The events follow OpenLineage 2.0.2 and its facets, which are documented as JSON; they are few, and
sent to one address, so that no library is asked for.
"""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.contract.schema import parse_table
from tideline.settings import Openlineage, Settings, SourceSettings

PRODUCER = "urn:tideline"
_SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_RUNS = uuid.UUID("5b6b1c0e-5d4e-5f0e-9a55-0f7f3d6a2c11")
_PORTS = {"postgres": 5432, "mysql": 3306, "mariadb": 3306}
_WRITTEN = (Outcome.APPLIED, Outcome.ALREADY_APPLIED)

Kind = Literal["START", "COMPLETE", "FAIL"]
Event = Mapping[str, Any]


@dataclass
class Emitter:
    """Sends events to the address in the settings; nowhere when there is none.

    ``sent`` counts what was delivered, ``lost`` what was not, by what was wrong.
    """

    settings: Openlineage
    sent: int = 0
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def wanted(self) -> bool:
        return self.settings.url is not None

    def emit(self, event: Event) -> None:
        """Deliver ``event`` within ``timeout_s``, or count it as lost. Raises nothing."""
        if self.settings.url is None:
            return
        try:
            self._post(self.settings.url, msgspec.json.encode(event))
            self.sent += 1
        except urllib.error.HTTPError as error:
            self._lose(f"status {error.code}")
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            self._lose(type(reason if isinstance(reason, Exception) else error).__name__)

    def told(self) -> str | None:
        """What was lost, in words; None when nothing was."""
        if not self.lost:
            return None
        why = ", ".join(f"{reason} ({count})" for reason, count in sorted(self.lost.items()))
        count = sum(self.lost.values())
        return f"{count} of {count + self.sent} OpenLineage events were not delivered: {why}"

    def _post(self, url: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        if self.settings.api_key is not None:
            headers["Authorization"] = f"Bearer {self.settings.api_key.get_secret_value()}"
        address = f"{url.rstrip('/')}/{self.settings.endpoint.lstrip('/')}"
        request = urllib.request.Request(address, data=body, headers=headers, method="POST")
        with _OPENER.open(request, timeout=self.settings.timeout_s):
            pass

    def _lose(self, reason: str) -> None:
        self.lost[reason] = self.lost.get(reason, 0) + 1


class Told:
    """The events of a pipeline's merge runs, as its settings want them."""

    def __init__(self, settings: Settings) -> None:
        self._source = settings.source
        self._namespace = settings.openlineage.namespace
        self._emitter = Emitter(settings.openlineage)

    def began(self, plan: Plan) -> None:
        if self._emitter.wanted:
            self._emitter.emit(started(plan, self._source, self._namespace, datetime.now(UTC)))

    def done(self, plan: Plan, receipt: Receipt | None) -> str | None:
        """``receipt`` is None when the run left none. Returns what was not delivered, in words."""
        if self._emitter.wanted:
            now = datetime.now(UTC)
            self._emitter.emit(ended(plan, self._source, self._namespace, now, receipt))
        return self._emitter.told()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def started(plan: Plan, source: SourceSettings, namespace: str, at: datetime) -> Event:
    """That the run of ``plan`` begins."""
    return _event("START", plan, source, namespace, at, {})


def ended(
    plan: Plan, source: SourceSettings, namespace: str, at: datetime, receipt: Receipt | None
) -> Event:
    """How it ended: FAIL when a table failed or was refused, or when no ``receipt`` was left."""
    receipts = {} if receipt is None else {one.table: one for one in receipt.tables}
    wrong = [one for one in receipts.values() if one.outcome not in _WRITTEN]
    failed = receipt is None or bool(wrong)
    event = _event("FAIL" if failed else "COMPLETE", plan, source, namespace, at, receipts)
    if failed:
        said = "; ".join(f"{one.table}: {one.error or one.outcome.value}" for one in wrong)
        facet = {"message": said or "no receipt was left", "programmingLanguage": "Python"}
        event["run"]["facets"]["errorMessage"] = _facet("ErrorMessageRunFacet", "1-0-1", facet)
    return event


def run_id(pipeline: str, plan_id: str) -> str:
    """The same for every try of a plan: to who listens they are one run."""
    return str(uuid.uuid5(_RUNS, f"{pipeline}/{plan_id}"))


def _event(
    kind: Kind,
    plan: Plan,
    source: SourceSettings,
    namespace: str,
    at: datetime,
    receipts: Mapping[str, TableReceipt],
) -> dict[str, Any]:
    tables: Sequence[TablePlan] = plan.tables
    if receipts:
        written = {name for name, one in receipts.items() if one.outcome in _WRITTEN}
        tables = [table for table in tables if table.table in written]
    return {
        "eventType": kind,
        "eventTime": at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "producer": PRODUCER,
        "schemaURL": _SPEC,
        "run": {"runId": run_id(plan.pipeline, plan.plan_id), "facets": {}},
        "job": {"namespace": namespace, "name": f"{plan.pipeline}.merge"},
        "inputs": [
            {**_source(source, table.table), "facets": {"schema": _schema(_at_source(table))}}
            for table in tables
        ],
        "outputs": [_output(source, table, receipts.get(table.table)) for table in tables],
    }


def _output(
    source: SourceSettings, table: TablePlan, receipt: TableReceipt | None
) -> dict[str, Any]:
    origin = _source(source, table.table)
    types = {column.name: column.type for column in table.schema.columns}
    if receipt is not None and receipt.lineage:
        # What was written: a target need not follow every change of columns.
        types = {one.column: one.type for one in receipt.lineage}
    fields = {name: {"inputFields": [{**origin, "field": name}]} for name in types}
    facets = {
        "schema": _schema(types),
        "columnLineage": _facet("ColumnLineageDatasetFacet", "1-2-0", {"fields": fields}),
    }
    output = {**_target(table.target), "facets": facets}
    if receipt is not None:
        counts = {"rowCount": receipt.inserted + receipt.updated}
        name = "OutputStatisticsOutputDatasetFacet"
        output["outputFacets"] = {"outputStatistics": _facet(name, "1-0-2", counts)}
    return output


def _at_source(table: TablePlan) -> dict[str, str]:
    return {column.name: column.source_type for column in table.schema.columns}


def _schema(types: Mapping[str, str]) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return _facet("SchemaDatasetFacet", "1-1-1", {"fields": fields})


def _facet(name: str, version: str, content: Mapping[str, Any]) -> dict[str, Any]:
    url = f"{_FACETS}/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **content}


def _source(source: SourceSettings, table: str) -> dict[str, str]:
    """A table of the source, named as OpenLineage names those of its kind."""
    parts = urlsplit(source.url.get_secret_value())
    named = parse_table(table)
    name = f"{named.schema}.{named.name}"
    if source.kind == "postgres":
        name = f"{unquote(parts.path.strip('/'))}.{name}"
    scheme = "postgres" if source.kind == "postgres" else "mysql"
    return {
        "namespace": f"{scheme}://{parts.hostname}:{parts.port or _PORTS[source.kind]}",
        "name": name,
    }


def _target(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return {"namespace": "file", "name": parts.path}
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.strip("/")}
