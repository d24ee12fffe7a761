"""Sources of which the settings choose no table: an empty database, or patterns too early for it.

One rule, for `tideline doctor` and for the worker: that is no reason not to start. Tables come
later, and are taken up then; a mistyped pattern is named as one that nothing matches.
"""

from __future__ import annotations

from tideline_capture.sources.finding import Finding, ok, warning


def nothing_chosen(exist: str | None = None, fix: str | None = None) -> Finding:
    """Return the message, before capture starts and while it runs. ``exist``: which tables there
    are, in words; ``fix``: what chooses them."""
    others = "" if exist is None else f"; {exist}"
    text = f"source.tables matches no table: capture waits for tables that come{others}"
    return warning("tables", text, fix)


def how_many(captured: int, chosen: int) -> Finding:
    """Return the message about the ``chosen`` tables together, of which ``captured`` can be
    captured."""
    if captured:
        return ok("tables", f"{captured} tables can be captured")
    text = f"none of the {chosen} matching tables can be captured: all are left out"
    return warning("tables", text)
