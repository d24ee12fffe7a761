"""A way to a real S3 server for clients of any identity, which remembers what each request said.

The server knows one key. Here each request is signed again with that one, so that what a client
gets from a profile, from STS or from a metadata service need not be known to the server. What a
request asks for of encryption is kept as well, and not passed on: the server has no KMS. A bucket
in the name of the host, below `DOMAIN`, is passed on in the path; the same service is the proxy by
which clients find such a host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from devtools.services.s3 import REGION, S3Server
from tests.faults.s3_faults import Answer, Request, S3Faults

DOMAIN = "s3.test"
_ENCRYPTION = "x-amz-server-side-encryption"
_KMS_KEY = f"{_ENCRYPTION}-aws-kms-key-id"
_PASSED_ON = ("content-type", "if-match", "if-none-match", "range")
_IDENTITY = re.compile(r"Credential=([^/]+)/")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request: of whom, and what it asks for. ``writes``: it makes an object, or begins to.
    ``host`` is that of its header, without the port."""

    method: str
    host: str
    bucket: str
    key: str
    client: str
    identity: str
    token: str | None
    encryption: str | None
    kms_key: str | None
    writes: bool


class AnyIdentity(S3Faults):
    """See `S3Faults`; ``requests`` are those that came, in order."""

    def __init__(self, server: S3Server) -> None:
        super().__init__(server)
        self.requests: list[Seen] = []

    def send(self, request: Request) -> Answer:
        sent = {name.lower(): value for name, value in request.headers}
        host = sent["host"].partition(":")[0]
        request = _in_path(request, host)
        found = _IDENTITY.search(sent.get("authorization", ""))
        query = request.target.partition("?")[2]
        self.requests.append(
            Seen(
                request.method,
                host,
                request.bucket,
                request.key,
                sent.get("user-agent", ""),
                found[1] if found else "",
                sent.get("x-amz-security-token"),
                sent.get(_ENCRYPTION),
                sent.get(_KMS_KEY),
                (request.method == "PUT" and "partNumber" not in query)
                or (request.method == "POST" and query.startswith("uploads")),
            )
        )
        return super().send(self._signed(request, sent))

    def make_bucket(self, name: str) -> None:
        """Make a bucket that the server lacks."""
        made = Request("put", name, "", "PUT", f"/{name}", (("host", "127.0.0.1"),), b"")
        status, _, body = super().send(self._signed(made, {}))
        assert status in (200, 409), body

    def _signed(self, request: Request, sent: dict[str, str]) -> Request:
        # heavy: only tests of identities need them
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        body = request.body
        if "aws-chunked" in sent.get("content-encoding", ""):
            body = _unchunked(body)
        server = self._upstream
        kept: dict[str, Any] = {n: sent[n] for n in _PASSED_ON if n in sent}
        made = AWSRequest(
            request.method, f"{server.endpoint}{request.target}", headers=kept, data=body
        )
        keys = Credentials(server.access_key_id, server.secret_access_key)
        S3SigV4Auth(keys, "s3", REGION).add_auth(made)
        headers = {**dict(made.headers.items()), "Host": f"127.0.0.1:{server.port}"}
        if body or request.method in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        return Request(
            request.kind,
            request.bucket,
            request.key,
            request.method,
            request.target,
            tuple(headers.items()),
            body,
        )


def _in_path(request: Request, host: str) -> Request:
    """The request with its bucket in the path."""
    parts = urlsplit(request.target)  # A client of a proxy writes the whole address.
    target = parts._replace(scheme="", netloc="").geturl()
    if not host.endswith(f".{DOMAIN}"):
        return replace(request, target=target)
    bucket = host.removesuffix(f".{DOMAIN}")
    key = unquote(parts.path).lstrip("/")
    return replace(request, bucket=bucket, key=key, target=f"/{bucket}{target}")


def _unchunked(body: bytes) -> bytes:
    """The object in a body of chunks, each with its length and mostly a signature before it."""
    data = b""
    while True:
        head, _, body = body.partition(b"\r\n")
        length = int(head.partition(b";")[0], 16)
        if length == 0:
            return data
        data, body = data + body[:length], body[length + 2 :]
