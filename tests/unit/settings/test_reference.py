"""docs/SETTINGS.md says what the settings' classes say, and every setting says what it means."""

from __future__ import annotations

from pathlib import Path

from tideline.settings.reference import reference

PAGE = Path(__file__).resolve().parents[3] / "docs" / "SETTINGS.md"


def test_the_page_is_the_classes() -> None:
    """``python -m tideline.settings.reference > docs/SETTINGS.md`` makes it again."""
    assert PAGE.read_text() == reference()


def test_every_setting_says_what_it_means() -> None:
    silent = [line for line in reference().splitlines() if line.endswith("|  |")]
    assert silent == []
