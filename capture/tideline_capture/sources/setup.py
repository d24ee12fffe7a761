"""Shell patterns in the statements that a source's owner runs once before capture."""

from __future__ import annotations

from collections.abc import Iterator


def signs(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the signs of a shell pattern: ``any`` (``*``), ``one`` (``?``), ``set`` (the content of
    the brackets, with ``^`` in front where it is negated) and ``text`` (a character as it is)."""
    at = 0
    while at < len(pattern):
        sign, at = pattern[at], at + 1
        if sign == "*":
            yield "any", ""
        elif sign == "?":
            yield "one", ""
        elif sign == "[" and (end := _end_of_set(pattern, at)) is not None:
            inner, at = pattern[at:end], end + 1
            yield "set", f"^{inner[1:]}" if inner.startswith("!") else inner
        else:
            yield "text", sign


def _end_of_set(pattern: str, at: int) -> int | None:
    """Return where the set that begins at ``at`` closes; a ``]`` that comes first belongs to it."""
    first = at + 1 if pattern[at : at + 1] == "!" else at
    end = pattern.find("]", first + 1)
    return None if end < 0 else end
