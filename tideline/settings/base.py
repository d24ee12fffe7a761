"""The base of the sections of the settings."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

MiB = 1024 * 1024
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
"""A name that is a folder's in the store, too."""
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Days = Annotated[float, Field(ge=1 / 24, le=36_500)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, Field(ge=1)]
"""A size that a machine, a log or a run may have, of any number of gigabytes."""


class Effect(StrEnum):
    """The time at which a change of the settings file takes effect."""

    LIVE = "live"
    """The worker follows it within seconds, and each command when it is run."""
    RESTART = "restart"
    """The worker follows it once it is restarted, and each command when it is run."""
    COMMAND = "command"
    """Only commands and Airflow's tasks read it, each time they are run."""


class Section(BaseModel):
    """A section of the settings. ``effect`` holds for the keys whose annotation gives no other."""

    effect: ClassVar[Effect]

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    def __init_subclass__(cls, *, shared: bool = False, **options: Any) -> None:
        """Check the class: ``shared`` are keys of several sections, each with its own effect."""
        super().__init_subclass__(**options)
        if not (shared or hasattr(cls, "effect")):
            raise TypeError(f"{cls.__name__} does not say when its keys count")
