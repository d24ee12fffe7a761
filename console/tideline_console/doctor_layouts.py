"""Checks the layouts and readers of tables in the settings against the columns that they have."""

from __future__ import annotations

from tideline.planner.unmakeable import unmakeable_tables
from tideline.settings import Settings
from tideline_capture.sources.finding import Finding, ok, warning

_FIX = (
    "mend [tables] in the settings (docs/LAYOUT.md): until then the table is not made, or rebuilt"
)


def check_layouts(settings: Settings) -> list[Finding]:
    """Return a warning for each table of the chain that could not be made as the settings say; none
    where they say nothing of it, or nothing is captured yet. Capture needs none of it."""
    problems, asked = unmakeable_tables(settings)
    if problems:
        return [warning("layout", f"{name}: {why}", _FIX) for name, why in problems.items()]
    return [ok("layout", f"{asked} tables can be made as [tables] says")] if asked else []
