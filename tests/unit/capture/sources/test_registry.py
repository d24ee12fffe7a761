"""The registry of sources: each kind's code is where it says, and loaded only when it is asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tideline.contract.errors import InvariantBroken
from tideline.settings import Settings, SourceSettings, make_settings
from tideline.settings.source_kinds import SOURCE_KINDS, own_sections
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


def test_a_read_only_source_has_no_watermarks() -> None:
    assert administration_of(settings("mysql")).writes_watermarks
    assert not administration_of(settings("mysql", read_only=True)).writes_watermarks


def test_a_section_has_keys_that_nothing_else_has() -> None:
    """They are keys and attributes of one object; their docstrings begin with whose they are."""
    keys = [key for section in own_sections() for key in section.model_fields]
    assert len(keys) == len(set(keys))
    for key in keys:
        assert key not in SourceSettings.model_fields and not hasattr(SourceSettings, key)
    for section in own_sections():
        titles = [kind.title for kind in SOURCE_KINDS.values() if kind.section is section]
        for key, field in section.model_fields.items():
            assert (field.description or "").startswith(f"{', '.join(titles)}: "), key


@pytest.mark.parametrize("name", KINDS)
def test_only_its_own_section_is_given(name: str) -> None:
    source = settings(name).source
    for section in own_sections():
        if section is SOURCE_KINDS[name].section:
            assert source.section(section) is source
        else:
            with pytest.raises(InvariantBroken, match=f"a {name} source has no"):
                source.section(section)


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
@pytest.mark.thorough
def test_one_driver_is_enough(present: str, other: str, absent: list[str]) -> None:
    """A process that has the driver of one database only runs the commands on it, and names the
    extra that the other one needs."""
    program = _WITHOUT.format(absent=absent, present=present, other=other)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
