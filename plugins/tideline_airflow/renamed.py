"""Names of 0.1.0 that still work, with a warning, until 0.3.0."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any


def look_up(module: str, name: str, renamed: Mapping[str, type[Any]]) -> type[Any]:
    """Return the class that ``name`` of ``module`` is called now, and warn; for the module's
    ``__getattr__``. Raises AttributeError for a name that is not in ``renamed``."""
    if name not in renamed:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    now = renamed[name]
    warn(f"{name} is called {now.__name__} since 0.2.0, and goes with 0.3.0", above=2)
    return now


def warn(text: str, *, above: int = 1) -> None:
    """Warn where a DAG is read: of the line ``above`` so many callers of the function that calls
    this."""
    warnings.warn(text, DeprecationWarning, stacklevel=above + 2)
