"""The six errors, distinguished by what the operator does.

::

    TidelineError
    ├── Unavailable      a server did not answer; retried, within bounds
    ├── Misconfigured    settings or grants are wrong; the hint is the fixing statement
    ├── SourceLost       the log position, slot or server is gone; re-dump
    ├── CorruptData      something durable does not say what it should; stop and quarantine
    ├── Fenced           another worker extends this chain; exit
    └── InvariantBroken  a bug of ours; crash

Messages are lower-case, with the context last. They never hold a row's value or a secret. Names in
them come from others: whatever one holds, a message is one line, and shows every character.
"""

from __future__ import annotations

from tideline.contract.printable import printable


class TidelineError(Exception):
    """Base of all errors that Tideline raises on purpose.

    ``hint`` says what to do next: a statement to run, a setting to change, or None. ``lines``
    follow the message, each in its own line. All of them are `printable`. Instances survive
    pickling (Spark and Airflow move them between processes).
    """

    def __init__(self, message: str, hint: str | None = None, lines: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint, *((lines,) if lines else ()))
        self.message = "\n  ".join(map(printable, (message, *lines)))
        self.hint = None if hint is None else printable(hint)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}; {self.hint}"


class Unavailable(TidelineError):
    """A server or store did not answer in time; the same call may succeed later."""


class Misconfigured(TidelineError):
    """A setting, grant or server option is wrong; ``hint`` carries what fixes it."""


class SourceLost(TidelineError):
    """The source's log no longer holds what comes next, or it is another server."""


class CorruptData(TidelineError):
    """Durable data contradicts itself: a digest, a count or a contiguous number is wrong."""


class Fenced(TidelineError):
    """Another worker has extended the chain; this one must stop without confirming anything."""


class InvariantBroken(TidelineError):
    """A state that our own code must never reach."""
