"""What the sections of the settings are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MiB = 1024 * 1024
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Days = Annotated[float, Field(ge=1 / 24, le=36_500)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )
