"""Asks a schema registry for the ids of schemas, by the protocol of Confluent's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings.avro import AvroSettings
from tideline_publish.formats.avro.schemas import AvroSchema
from tideline_publish.http import explained, make_pool

_TYPE = "application/vnd.schemaregistry.v1+json"
_LATER = frozenset({408, 425, 429})
_ID_MAX = 2**31 - 1
_INCOMPATIBLE, _INVALID, _UNKNOWN = 409, 422, 404
_DOCS = "docs/PUBLISHING.md#avro"


class SchemaIds(Protocol):
    """The numbers that schemas have for consumers."""

    def id_of(self, subject: str, schema: AvroSchema) -> int:
        """Return the id of ``schema``, which ``subject`` has then. Raises Misconfigured where the
        registry refuses it, Unavailable where it does not answer."""
        ...


class UnregisteredIds:
    """Counts schemas, and registers none: for what is published nowhere."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id_of(self, subject: str, schema: AvroSchema) -> int:
        """See `SchemaIds`."""
        return self._ids.setdefault(_text(schema), len(self._ids) + 1)


class SchemaRegistry:
    """Registers schemas, or looks them up. An id is asked for once; no request is repeated here."""

    def __init__(self, settings: AvroSettings) -> None:
        assert settings.registry is not None
        self._settings = settings
        self._host = urlsplit(settings.registry).netloc
        self._ids: dict[tuple[str, str], int] = {}
        self._pool: urllib3.PoolManager | None = None

    def id_of(self, subject: str, schema: AvroSchema) -> int:
        """See `SchemaIds`."""
        at = subject, _text(schema)
        if at not in self._ids:
            self._ids[at] = self._ask(*at)
        return self._ids[at]

    def _ask(self, subject: str, schema: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        path += "/versions" if self._settings.register_schemas else ""
        body = json.dumps({"schemaType": "AVRO", "schema": schema}).encode()
        status, answer = self._post(path, body)
        if status != 200:
            raise self._refused(subject, status, answer)
        found = _decoded(answer).get("id")
        if not isinstance(found, int) or not 0 <= found <= _ID_MAX:
            raise Misconfigured(
                f"{self._host} has answered with no id for the subject {subject}",
                hint="check that avro.registry is a schema registry, and its path",
            )
        return found

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        try:
            answer = self._opened().request(
                "POST",
                f"{self._settings.registry}{path}",
                body=body,
                headers=self._headers(),
                redirect=False,
                retries=False,
            )
        except HTTPError as error:
            place = f"the schema registry {self._host}"
            raise explained(error, place, setting="avro.ca_file") from None
        return answer.status, answer.data

    def _opened(self) -> urllib3.PoolManager:
        if self._pool is None:
            self._pool = make_pool(
                self._settings.timeout_s, self._settings.ca_file, setting="avro.ca_file"
            )
        return self._pool

    def _headers(self) -> Mapping[str, str]:
        headers = {"Content-Type": _TYPE, "Accept": _TYPE, "User-Agent": "tideline"}
        if self._settings.user is not None:
            pair = f"{self._settings.user}:{self._settings.secret() or ''}"
            headers |= urllib3.make_headers(basic_auth=pair.encode().decode("latin-1"))
        return headers

    def _refused(self, subject: str, status: int, answer: bytes) -> TidelineError:
        if status >= 500 or status in _LATER:
            return Unavailable(f"the schema registry {self._host} answers {status}")
        why, hint = self._reason(status)
        code = _decoded(answer).get("error_code")
        number = f" ({code})" if isinstance(code, int) and code != status else ""
        return Misconfigured(
            f"the schema registry refuses the subject {subject}: {why}{number}", hint=hint
        )

    def _reason(self, status: int) -> tuple[str, str]:
        if status in (401, 403):
            return (
                f"{status}, the user may not",
                "check avro.user and avro.password_file, and the user's rights at the registry",
            )
        if status == _INCOMPATIBLE:
            return (
                "the schema is not compatible with an earlier version",
                f"change the subject's compatibility, or give the table another topic ({_DOCS})",
            )
        if status == _INVALID:
            return "the schema is not valid there", f"see the registry's log ({_DOCS})"
        if status == _UNKNOWN and not self._settings.register_schemas:
            return (
                "it has no such schema",
                "register it, or set avro.register_schemas = true",
            )
        return f"status {status}", "check that avro.registry is a schema registry, and its path"


def _text(schema: AvroSchema) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _decoded(answer: bytes) -> Mapping[str, Any]:
    """Return the members of an answer; none of what is no object."""
    try:
        found = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        return {}
    return found if isinstance(found, dict) else {}
