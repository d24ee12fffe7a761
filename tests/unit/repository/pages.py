"""Sections of docs/CONTRIBUTING.md, which tests compare with the tree."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = re.split(r"^## ", (ROOT / "docs" / "CONTRIBUTING.md").read_text(), flags=re.M)[1:]
"""The text of each, from its title on."""


def page(title: str) -> str:
    (found,) = [text for text in PAGES if text.startswith(f"{title}\n")]
    return found
