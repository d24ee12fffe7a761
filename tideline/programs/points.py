"""Named points of a program, at which fault tests stop or kill it.

The product calls ``on_point(name)`` where what is durable, or visible to others, has just changed
or is about to; outside of tests that is `pass_by`. No point lies in a loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable

OnPoint = Callable[[str], None]
"""A callback, called from any of the program's threads."""


def pass_by(name: str) -> None:
    """Do nothing at the point ``name``."""
