"""How many processes play seeds at once."""

from __future__ import annotations

import os

PROCESSES = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
"""Where tests run side by side, these have their share of the cores like any other."""
