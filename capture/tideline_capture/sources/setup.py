"""What the owner of a source runs once, so that a pipeline's role can capture it."""

from __future__ import annotations

from collections.abc import Iterator


def signs(pattern: str) -> Iterator[tuple[str, str]]:
    """The signs of a shell pattern: ``any`` (``*``), ``one`` (``?``), ``set`` (what stands in
    brackets, with ``^`` in front where it is negated) and ``text`` (a character as it is)."""
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
    """Where the set that begins at ``at`` closes; a ``]`` that comes first belongs to it."""
    first = at + 1 if pattern[at : at + 1] == "!" else at
    end = pattern.find("]", first + 1)
    return None if end < 0 else end
