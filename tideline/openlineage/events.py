"""Builds OpenLineage's events and datasets from plans and receipts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import DatasetFacet, error_message_run, schema_dataset
from openlineage.client.facet_v2 import column_lineage_dataset as columns
from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import DONE, Receipt, TableReceipt
from tideline.contract.schema import parse_table
from tideline.settings import Settings, SourceSettings
from tideline.settings.source_kinds import SOURCE_KINDS

PRODUCER = "urn:tideline"
_RUNS = uuid.UUID("5b6b1c0e-5d4e-5f0e-9a55-0f7f3d6a2c11")


def started(settings: Settings, plan: Plan, at: datetime) -> RunEvent:
    """Make the event that the run of ``plan`` begins."""
    inputs, outputs = datasets(settings.source, plan, None)
    return RunEvent(
        eventType=RunState.START,
        eventTime=at.astimezone(UTC).isoformat(timespec="milliseconds"),
        producer=PRODUCER,
        run=Run(run_id(plan.pipeline, plan.plan_id)),
        job=Job(settings.openlineage.namespace, f"{plan.pipeline}.merge"),
        inputs=inputs,
        outputs=outputs,
    )


def ended(settings: Settings, plan: Plan, at: datetime, receipt: Receipt | None) -> RunEvent:
    """Make the event that it has ended: FAIL when a table failed or was refused, or when the run
    left no ``receipt``."""
    event = started(settings, plan, at)
    event.eventType = RunState.COMPLETE
    event.inputs, event.outputs = datasets(settings.source, plan, receipt)
    wrong = () if receipt is None else [t for t in receipt.tables if t.outcome not in DONE]
    if receipt is None or wrong:
        event.eventType = RunState.FAIL
        message = "; ".join(f"{one.table}: {one.error or one.outcome.value}" for one in wrong)
        error = error_message_run.ErrorMessageRunFacet(
            message or "no receipt was left", "Python", producer=PRODUCER
        )
        event.run.facets = {"errorMessage": error}
    return event


def run_id(pipeline: str, plan_id: str) -> str:
    """Return the run's id, the same for every try of a plan: a receiver sees one run."""
    return str(uuid.uuid5(_RUNS, f"{pipeline}/{plan_id}"))


def datasets(
    source: SourceSettings, plan: Plan, receipt: Receipt | None
) -> tuple[list[InputDataset], list[OutputDataset]]:
    """Return the tables that a run reads and writes; of a ``receipt`` that names tables, those
    written."""
    receipts = {} if receipt is None else {one.table: one for one in receipt.tables}
    written = {name for name, one in receipts.items() if one.outcome in DONE}
    tables = [one for one in plan.tables if not receipts or one.table in written]
    inputs = [_input(source, table) for table in tables]
    pairs = zip(inputs, tables, strict=True)
    return inputs, [_output(origin, table, receipts.get(table.table)) for origin, table in pairs]


def _input(source: SourceSettings, table: TablePlan) -> InputDataset:
    """Return a table of the source, by OpenLineage's naming for its kind of source."""
    naming, named = SOURCE_KINDS[source.kind].datasets, parse_table(table.table)
    namespace, name = naming.name(source.url.get_secret_value(), named.schema, named.name)
    types = {column.name: column.source_type for column in table.schema.columns}
    return InputDataset(namespace, name, facets={"schema": _schema(types)})


def _output(origin: InputDataset, table: TablePlan, receipt: TableReceipt | None) -> OutputDataset:
    types = {column.name: column.type for column in table.schema.columns}
    if receipt is not None and receipt.lineage:
        # The columns that were written: a target need not follow every change of columns.
        types = {one.column: one.type for one in receipt.lineage}
    parts = urlsplit(table.target)
    namespace, name = f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    if parts.scheme == "file":
        namespace, name = "file", parts.path
    read = {
        one: columns.Fields([columns.InputField(origin.namespace, origin.name, one)])
        for one in types
    }
    lineage = columns.ColumnLineageDatasetFacet(read, producer=PRODUCER)
    facets: dict[str, DatasetFacet] = {"schema": _schema(types), "columnLineage": lineage}
    if receipt is None:
        return OutputDataset(namespace, name, facets=facets)
    written = receipt.inserted + receipt.updated
    counts = statistics.OutputStatisticsOutputDatasetFacet(written, producer=PRODUCER)
    return OutputDataset(namespace, name, {"outputStatistics": counts}, facets=facets)


def _schema(types: Mapping[str, str]) -> schema_dataset.SchemaDatasetFacet:
    fields = [schema_dataset.SchemaDatasetFacetFields(*column) for column in types.items()]
    return schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)
