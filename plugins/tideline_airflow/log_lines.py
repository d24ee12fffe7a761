"""Names and reasons as Airflow's log shows them."""

from __future__ import annotations

import re

from tideline.contract.printable import printable

_FOLDS = re.compile("::(?:end)?group::")


def log_line(text: str) -> str:
    """Return ``text`` as one line that Airflow's page shows: `printable`, and without the markers
    by which the page folds lines. It finds them anywhere in a line, and leaves that line out."""
    return _FOLDS.sub(lambda found: found[0].replace(":", "\\x3a"), printable(text))
