"""Proves that a project's BigQuery can be used as merges use it, and names what is missing."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.warehouse.bigquery.client import BigQueryPlace, asking, open_client, reason_of
from tideline.warehouse.bigquery.names import OWN, TableName

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Dataset

PERSON = "a person's login"
EMULATOR = "none, as an emulator needs none"
_KINDS = {
    "google.oauth2.service_account": "a service account's key",
    "google.auth.compute_engine": "the service account of this machine",
    "google.auth.impersonated_credentials": "an impersonated service account",
    "google.auth.external_account": "a workload identity",
    "google.auth.identity_pool": "a workload identity",
    "google.auth.aws": "a workload identity",
    "google.auth.pluggable": "a workload identity",
    "google.auth.external_account_authorized_user": PERSON,
    "google.oauth2.credentials": PERSON,
    "google.auth.credentials": EMULATOR,
}
"""The kinds of credentials, by the module of their class in Google's library."""
_DENIED = ("accessDenied", "forbidden")
_PERMISSION = re.compile(r"\bbigquery\.[A-Za-z]+\.[A-Za-z]+\b")
_EXPIRY = timedelta(hours=1)
"""The age at which BigQuery removes the table of a probe that was killed."""


class Need(NamedTuple):
    """A permission that a step takes, and the role that has it."""

    permission: str
    role: str


_EDITOR, _USER = "BigQuery Data Editor on the dataset", "BigQuery User on the project"
_SEE = Need("bigquery.datasets.get", _USER)
_MAKE_DATASET = Need("bigquery.datasets.create", _USER)
_MAKE = Need("bigquery.tables.create", _EDITOR)
_LOOK = Need("bigquery.tables.get", _EDITOR)
_JOB = Need("bigquery.jobs.create", _USER)
_JOBS = Need("bigquery.jobs.list", _USER)
_READ = Need("bigquery.tables.getData", _EDITOR)
_DROP = Need("bigquery.tables.delete", _EDITOR)
_DROP_DATASET = Need("bigquery.datasets.delete", "BigQuery Data Owner on it")


def credentials_kind(place: BigQueryPlace) -> str:
    """Return the kind of the credentials that ``place`` leads to, none of which is asked for.

    Raises Misconfigured without Google's library and without credentials.
    """
    found = type(open_client(place)._credentials)
    known = (kind for name, kind in _KINDS.items() if _is_of(found, name))
    return next(known, f"of the kind {found.__module__}")


def _is_of(found: type, module: str) -> bool:
    return found.__module__ == module or found.__module__.startswith(f"{module}.")


def probe_dataset(place: BigQueryPlace, dataset: str) -> bool:
    """Make a table in ``dataset``, load it, run a script with a transaction in it, read and drop
    it; return False where there is no such dataset.

    Raises Misconfigured for a dataset in another location, for credentials that are refused, and
    for a missing permission, with its role; Unavailable where BigQuery gives no answer.
    """
    # heavy: only pipelines with BigQuery tables need it
    from google.api_core.exceptions import NotFound

    client = open_client(place)
    with _step(f"to see the dataset {dataset}", _SEE):
        try:
            found = client.get_dataset(f"{place.project}.{dataset}")
        except NotFound as error:
            if "Not found: Project" in str(error):
                raise
            return False
    _check_location(found, place)
    _probe_table(client, place, dataset)
    return True


def probe_new_dataset(place: BigQueryPlace, prefix: str) -> None:
    """Make a dataset of a name of its own behind ``prefix``, as `probe_dataset` tries it, and
    remove it. Raises as that does."""
    # heavy: as above
    from google.cloud.bigquery import Dataset

    client = open_client(place)
    name = "__".join(filter(None, [prefix, f"tideline_probe_{uuid.uuid4().hex}"]))
    made = Dataset(f"{place.project}.{name}")
    made.location = place.location
    with _step("to make a dataset", _MAKE_DATASET):
        client.create_dataset(made)
    try:
        _probe_table(client, place, name)
    except TidelineError:
        with suppress(TidelineError), asking("to remove it"):
            client.delete_dataset(made, delete_contents=True, not_found_ok=True)
        raise
    with _step(f"to remove the dataset {name}, which stays", _DROP_DATASET):
        client.delete_dataset(made, delete_contents=True, not_found_ok=True)


def _check_location(found: Dataset, place: BigQueryPlace) -> None:
    if str(found.location).lower() != place.location.lower():
        raise Misconfigured(
            f"the dataset {found.dataset_id} is in {found.location}, and jobs run in"
            f" {place.location}",
            hint=f'set warehouse.bigquery.location = "{found.location}", or a dataset_prefix that'
            " leads to datasets of the other location: a dataset stays where it was made",
        )


def _probe_table(client: Client, place: BigQueryPlace, dataset: str) -> None:
    # heavy: as above
    from google.cloud.bigquery import SchemaField, Table

    name = TableName(place.project, dataset, f"{OWN}probe_{uuid.uuid4().hex}")
    made = Table(str(name), schema=[SchemaField("id", "INT64")])
    made.expires = datetime.now(UTC) + _EXPIRY
    where = f"in the dataset {dataset}"
    with _step(f"to make a table {where}", _MAKE):
        client.create_table(made)
    try:
        _use(client, place, name, where)
    except TidelineError:
        with suppress(TidelineError), asking("to remove it"):
            client.delete_table(str(name), not_found_ok=True)
        raise
    with _step(f"to remove a table {where}, which expires in an hour", _DROP):
        client.delete_table(str(name), not_found_ok=True)


def _use(client: Client, place: BigQueryPlace, name: TableName, where: str) -> None:
    """Do to the table ``name`` what a merge does, within the limit of bytes that merges have."""
    # heavy: as above
    from google.cloud.bigquery import LoadJobConfig, QueryJobConfig

    loads: Any = LoadJobConfig(source_format="PARQUET", write_disposition="WRITE_APPEND")
    with _step(f"to load rows into a table {where}", _JOB):
        client.load_table_from_file(_one_row(), str(name), job_config=loads).result()
    limit = QueryJobConfig(maximum_bytes_billed=place.maximum_bytes_billed)
    with _step(f"to run a script with a transaction {where}", _JOB):
        script = client.query(_script(name), job_config=limit)
        script.result()
    with _step("to count what a script has changed", _JOBS):
        list(client.list_jobs(parent_job=script, max_results=1))
    with _step(f"to look at a table {where}", _LOOK):
        found = client.get_table(str(name))
    with _step(f"to read a table {where}", _READ):
        rows = [row["id"] for row in client.list_rows(found)]
    if rows != [2]:
        raise Unavailable(
            f"BigQuery gave {rows} for the rows of a table {where} that was given one of 2",
            hint="check that warehouse.bigquery.endpoint is BigQuery's",
        )


def _one_row() -> io.BytesIO:
    # heavy: as above
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), file)
    file.seek(0)
    return file


def _script(name: TableName) -> str:
    merge = (
        f"MERGE {name.sql} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = 2"
    )
    return f"BEGIN TRANSACTION;\n{merge};\nCOMMIT TRANSACTION;\n"


@contextmanager
def _step(doing: str, need: Need) -> Iterator[None]:
    """Convert what Google's libraries raise in a step, which takes the permission ``need``. Nothing
    but permissions is taken of the text of a refusal."""
    # heavy: as above
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import RefreshError

    with asking(doing):
        try:
            yield
        except RefreshError:
            raise Misconfigured(
                "Google refuses the credentials for BigQuery",
                hint="make them again, or correct warehouse.bigquery.credentials_file"
                " (docs/BIGQUERY.md#credentials)",
            ) from None
        except GoogleAPICallError as error:
            if reason_of(error) not in _DENIED:
                raise
            raise _denied(doing, need, str(error)) from None


def _denied(doing: str, need: Need, text: str) -> Misconfigured:
    found = _PERMISSION.search(text)
    permission = need.permission if found is None else found[0]
    role = _USER if ".jobs." in permission else need.role
    if ".tables." in permission:
        role = _EDITOR
    return Misconfigured(
        f"BigQuery does not permit this principal {doing}: it lacks {permission}",
        hint=f"give it the role {role} (docs/BIGQUERY.md#permissions)",
    )
