"""Uploads of load jobs' files in Google's two protocols: all in one request, and resumable."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

from devtools.bigquery.answers import HttpError

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')


@dataclass(slots=True)
class Upload:
    """A job to be made, and what is there of its file; None of a job without one.

    ``answer`` is what it was answered with, which who sends the last piece again gets as well.
    """

    job: dict[str, Any]
    content: bytes | None = b""
    answer: dict[str, Any] | None = None

    def take(self, header: str, piece: bytes) -> bool:
        """Take a piece with its ``Content-Range``; return whether the file is complete. HttpError
        unless it begins where the last one ended, or is the last one again."""
        match = _RANGE.fullmatch(header)
        if match is None:
            raise HttpError(400, "badRequest", f"no range: {header}")
        first, last, total = match.groups()
        known = self.content or b""
        if first is not None:
            again = known[int(first) :] == piece
            follows = int(first) == len(known) and int(last) - int(first) + 1 == len(piece)
            if not (again or follows):
                raise HttpError(400, "badRequest", f"{header} after {len(known)} bytes")
            self.content = known if again else known + piece
        return total != "*" and int(total) == len(self.content or b"")

    @property
    def job_id(self) -> str | None:
        """The id that the client gave the job."""
        name: str | None = self.job.get("jobReference", {}).get("jobId")
        return name

    @property
    def range(self) -> dict[str, str]:
        """The header that says what is there already."""
        return {"Range": f"bytes=0-{len(self.content) - 1}"} if self.content else {}


class Uploads:
    """The resumable uploads that were begun, by id."""

    def __init__(self) -> None:
        self._begun: dict[str, Upload] = {}

    def begin(self, body: bytes) -> str:
        """Begin an upload for the job that ``body`` describes; return its id."""
        name = uuid.uuid4().hex
        self._begun[name] = Upload(json.loads(body))
        return name

    def find(self, name: str) -> Upload:
        """Return an upload; HttpError when there is none of this id."""
        if name not in self._begun:
            raise HttpError(404, "notFound", "no such upload")
        return self._begun[name]


def parts(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the job and the file in a ``multipart/related`` body."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise HttpError(400, "badRequest", f"no boundary: {content_type}")
    _, *found, _ = body.split(b"--" + match[1].encode())
    if len(found) != 2:
        raise HttpError(400, "badRequest", f"{len(found)} parts")
    job, content = (one.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for one in found)
    return json.loads(job), content
