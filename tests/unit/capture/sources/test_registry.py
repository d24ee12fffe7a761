"""The registry of sources: each kind's code is where it says, and loaded only when it is asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tideline.settings import Settings, SourceSettings, make_settings
from tideline.settings.source_kinds import SOURCE_KINDS
from tideline_capture.sources.registry import administration_of, source_of

KINDS = tuple(SOURCE_KINDS)
_URLS = {
    "postgres": "postgres://u@h/d",
    "mysql": "mysql://u@h/",
    "mariadb": "mariadb://u@h/",
}


def settings(kind: str, **source: Any) -> Settings:
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": _URLS[kind], **source},
            "store": {"url": "s3://b/x"},
            "warehouse": {"url": "file:///w"},
        }
    )


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_made(name: str) -> None:
    kind = SOURCE_KINDS[name]
    asked = settings(name)
    assert asked.source.kind == name
    assert isinstance(source_of(asked).begin(), kind.position)
    assert administration_of(asked).setup_sql()
    assert kind.form.partition("://")[0] in kind.schemes
    assert kind.options <= SourceSettings.model_fields.keys()


def test_no_two_kinds_have_one_scheme() -> None:
    schemes = [scheme for kind in SOURCE_KINDS.values() for scheme in kind.schemes]
    assert len(schemes) == len(set(schemes))


_WITHOUT = """
import sys
for name in {absent!r}:
    sys.modules[name] = None
from tideline_capture.sources.registry import source_of
from tests.unit.capture.sources.test_registry import settings
from tideline.contract.errors import Misconfigured
import tideline_capture.app, tideline_console.doctor, tideline_console.assess
import tideline_console.init, tideline_console.delete_pipeline
source_of(settings({present!r}))
try:
    source_of(settings({other!r}))
except Misconfigured as error:
    assert {absent!r}[0] in error.message, error
    assert "[" + {other!r} + "]" in error.hint, error
else:
    raise AssertionError("made without its driver")
"""


@pytest.mark.parametrize(
    ("present", "other", "absent"),
    [("postgres", "mysql", ["pymysql"]), ("mysql", "postgres", ["psycopg2"])],
)
def test_one_driver_is_enough(present: str, other: str, absent: list[str]) -> None:
    """A process that has the driver of one database only runs the commands on it, and names the
    extra that the other one needs."""
    program = _WITHOUT.format(absent=absent, present=present, other=other)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
