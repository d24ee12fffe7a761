"""A connection that is not what was asked for."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest

from tests.fixtures.services import Database
from tests.fixtures.settings import ConfigFactory
from tideline.contract.errors import Misconfigured
from tideline.settings import load_settings
from tideline_capture.sources.postgres.connect import connect


def test_settings_that_get_lost_on_the_way_are_named(
    database: Database, config_for: ConfigFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection pooler leaves ``options`` out, and a bytea would be another text."""
    source = load_settings(config_for(database)).source
    database.run(f'ALTER DATABASE "{database.name}" SET bytea_output = escape')
    connect(source, application_name="direct").close()
    opened: list[Any] = []
    real = psycopg2.connect

    def pooled(*args: Any, options: str, **kwargs: Any) -> Any:
        opened.append(real(*args, **kwargs))
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(psycopg2, "connect", pooled)
        with pytest.raises(Misconfigured, match=r"bytea_output, extra_float_digits.*pooler"):
            connect(source, application_name="pooled")
    assert opened[0].closed
