"""The answers of BigQuery's REST API when something fails, and a job's failure in it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

_STATUS = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
_CODES = {"notFound": 404, "duplicate": 409, "rateLimitExceeded": 403, "backendError": 503}


class HttpError(Exception):
    """A request is answered by an error: no job comes of it."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = HTTPStatus(code), reason, message

    @property
    def body(self) -> dict[str, Any]:
        """Return the answer's body."""
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        return {
            "error": {
                "code": int(self.code),
                "message": self.message,
                "errors": [detail],
                "status": _STATUS[self.code],
            }
        }


class JobError(Exception):
    """A job ends with an error; nothing of it was applied."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message

    @property
    def result(self) -> dict[str, str]:
        """Return what the job's status has as ``errorResult``."""
        return {"reason": self.reason, "message": self.message}


def unsupported(what: str) -> HttpError:
    """Return the error for what the stand-in does not model. BigQuery has it: a test that runs into
    this needs more of the stand-in, and clients do not repeat the request."""
    return HttpError(501, "notImplemented", f"this stand-in of BigQuery does not know {what}")


def failed(error: dict[str, str]) -> HttpError:
    """Return the error for who asks for the results of a job that ended with ``error``."""
    return HttpError(_CODES.get(error["reason"], 400), error["reason"], error["message"])
