"""Makes the source that the settings name; the one place that loads a concrete source's code.

The table of kinds is in `tideline.settings.source_kinds`. The code of a kind is imported when a url
asks for it, so that an install without one database's driver can capture the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from tideline.contract.errors import Misconfigured
from tideline.programs.points import OnPoint, pass_by
from tideline.settings import Settings
from tideline.settings.source_kinds import SOURCE_KINDS, SourceKind
from tideline_capture.sources.administration import Administration
from tideline_capture.sources.base import Source


class SourceFactory(Protocol):
    """The module ``factory`` of a source's package. Neither function asks the server anything."""

    def source(self, settings: Settings, on_point: OnPoint) -> Source:
        """Return the source as worker and doctor see it."""

    def administration(self, settings: Settings) -> Administration:
        """Return the source as seen by those who set a pipeline up and take it down."""


def source_of(settings: Settings, *, on_point: OnPoint = pass_by) -> Source:
    """Return the source of ``settings``. Raises Misconfigured where its driver is not installed."""
    return _factory(SOURCE_KINDS[settings.source.kind]).source(settings, on_point)


def administration_of(settings: Settings) -> Administration:
    """Return the administration of ``settings``' source. Raises as `source_of` does."""
    return _factory(SOURCE_KINDS[settings.source.kind]).administration(settings)


def _factory(kind: SourceKind) -> SourceFactory:
    try:
        return cast(SourceFactory, import_module(f"{kind.package}.factory", __package__))
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"a {kind.title} source needs the Python package {error.name}, which is not installed",
            hint=f"pip install 'tideline-cdc[{kind.extra}]'",
        ) from error
