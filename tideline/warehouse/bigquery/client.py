"""The client of BigQuery, Google's own, from the settings of a warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

LABEL = "tideline"
"""The label of our tables and jobs, with the pipeline."""
_SCOPES = ("https://www.googleapis.com/auth/bigquery",)
_CREDENTIALS: dict[str, Any] = {}
"""Credentials by their file: they keep the token until it expires."""
_HINTS = {
    "accessDenied": "give its principal the roles that docs/BIGQUERY.md lists",
    "forbidden": "give its principal the roles that docs/BIGQUERY.md lists",
    "bytesBilledLimitExceeded": "raise warehouse.bigquery.maximum_bytes_billed, or partition or"
    " cluster the table (docs/BIGQUERY.md#cost)",
    "quotaExceeded": "wait, or ask Google for more of the quota",
    "rateLimitExceeded": "have fewer tables merged at once (merge.tables_at_once)",
    "billingNotEnabled": "BigQuery runs no DML in a project without billing: enable it",
    "notFound": "check warehouse.bigquery.project and location",
}
_REFUSED = ("accessDenied", "forbidden", "bytesBilledLimitExceeded", "billingNotEnabled")


class BigQueryPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings that jobs need; nothing in it is a secret."""

    project: str
    location: str
    credentials_file: str | None = None
    maximum_bytes_billed: int | None = None
    labels: dict[str, str] = {}
    endpoint: str | None = None
    staging: str | None = None
    write_endpoint: str | None = None

    @classmethod
    def of(cls, place: Warehouse) -> BigQueryPlace:
        """Return that of a warehouse. Raises Misconfigured where it names no project."""
        settings = place.bigquery
        file = settings.credentials_file
        return cls(
            settings.need_project(),
            settings.location,
            None if file is None else str(file),
            settings.maximum_bytes_billed,
            dict(settings.labels),
            settings.endpoint,
            settings.staging,
            settings.write_endpoint,
        )

    @classmethod
    def parse(cls, text: str) -> BigQueryPlace:
        return msgspec.json.decode(text, type=cls)

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def open_client(place: BigQueryPlace) -> Client:
    """Return a client for one thread. Raises Misconfigured without Google's library, or where its
    credentials cannot be read."""
    try:
        # heavy: only pipelines with BigQuery tables need it
        from google.api_core.client_options import ClientOptions
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.bigquery import Client
    except ImportError:
        raise Misconfigured(
            "google-cloud-bigquery is not installed here",
            hint="pip install 'tideline-cdc[bigquery]'",
        ) from None
    options = None if place.endpoint is None else ClientOptions(api_endpoint=place.endpoint)
    try:
        return Client(
            project=place.project,
            location=place.location,
            credentials=credentials_of(place),
            client_options=options,
        )
    except (GoogleAuthError, OSError, ValueError) as error:
        raise Misconfigured(
            f"there are no usable credentials for BigQuery: {type(error).__name__}",
            hint="set warehouse.bigquery.credentials_file, or give this place the application"
            " default credentials (docs/BIGQUERY.md#credentials)",
        ) from None


def credentials_of(place: BigQueryPlace) -> Any:
    """Return credentials; None for the application default ones."""
    # heavy: as above
    from google.auth import load_credentials_from_file
    from google.auth.credentials import AnonymousCredentials

    if place.endpoint is not None and place.endpoint.startswith("http://"):
        return AnonymousCredentials()  # type: ignore[no-untyped-call]
    if place.credentials_file is None:
        return None
    if place.credentials_file not in _CREDENTIALS:
        load: Any = load_credentials_from_file
        found, _ = load(place.credentials_file, scopes=list(_SCOPES))
        _CREDENTIALS[place.credentials_file] = found
    return _CREDENTIALS[place.credentials_file]


def reason_of(error: Any) -> str:
    """Return BigQuery's word for a failure, without its text, which can hold a row's value."""
    listed = getattr(error, "errors", None) or ()
    named = next((one.get("reason") for one in listed if one.get("reason")), None)
    return str(named or type(error).__name__)


def refused(reason: str, doing: str) -> TidelineError:
    """Make the error for a request or job that BigQuery refused for ``reason``."""
    made = Misconfigured if reason in _REFUSED else Unavailable
    return made(f"BigQuery refused {doing}: {reason}", hint=_HINTS.get(reason))


@contextmanager
def asking(doing: str) -> Iterator[None]:
    """Convert what Google's libraries raise in the context, ``doing`` something."""
    # heavy: as above
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from requests.exceptions import RequestException

    try:
        yield
    except GoogleAPICallError as error:
        raise refused(reason_of(error), doing) from None
    except (RetryError, GoogleAuthError, RequestException, ConnectionError) as error:
        raise Unavailable(
            f"BigQuery gave no answer {doing}: {type(error).__name__}",
            hint="check the way to it, and its credentials (docs/BIGQUERY.md#credentials)",
        ) from None
