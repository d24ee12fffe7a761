"""What the url of a target says of it."""

from __future__ import annotations

import pytest

from tideline.contract.target_url import vectors_wanted


@pytest.mark.parametrize("url", ["file:///w/public/t", "iceberg://tideline/public/t"])
def test_deletion_vectors_that_differ_are_named(url: str) -> None:
    assert vectors_wanted(url, True, False) is False
    assert vectors_wanted(url, False, True) is True
    assert vectors_wanted(url, True, True) is vectors_wanted(url, False, False) is None


@pytest.mark.parametrize("wanted", [True, False])
def test_bigquery_knows_none_that_could_differ(wanted: bool) -> None:
    assert vectors_wanted("bigquery://my-project/public/t", False, wanted) is None
