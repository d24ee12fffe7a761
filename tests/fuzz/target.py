"""What is fuzzed, and the one rule: a decoder gives a value, or raises an error that is named.

A target is a function of bytes. Whatever it raises but the errors that it allows is a finding; so
is an allowed one that does not say where it stands, for the targets that have a place to name.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tideline.contract.errors import CorruptData, TidelineError

ROOT = Path(__file__).parent.parent.parent
CORPUS = Path(__file__).parent / "corpus"
GOLDEN = ROOT / "tests" / "golden"
_OURS = re.compile(r"/(capture|tideline|spark_jobs|console|plugins)/")


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` decodes; ``allows`` are the kinds of errors that its input may lead to, ``place`` is
    what the message of a CorruptData must match. ``golden``: folders under ``tests/golden``
    that are of its corpus too. Inputs are cut at ``length_max`` bytes."""

    name: str
    run: Callable[[bytes], object]
    allows: tuple[type[TidelineError], ...] = (CorruptData,)
    place: re.Pattern[str] | None = None
    golden: tuple[str, ...] = ()
    length_max: int = 4096

    def corpus(self) -> list[Path]:
        """The files of its corpus, in order of their names."""
        folders = [CORPUS / self.name, *(GOLDEN / one for one in self.golden)]
        return sorted(
            path
            for folder in folders
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".md"
        )

    def check(self, data: bytes) -> Exception | None:
        """What is wrong with how ``data`` was taken; None: nothing."""
        try:
            self.run(data[: self.length_max])
        except self.allows as error:
            placed = self.place is None or self.place.search(error.message)
            if isinstance(error, CorruptData) and not placed:
                return Unplaced(
                    f"{type(error).__name__} does not say where: {error.message}", error
                )
        except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
            return error
        return None


class Unplaced(Exception):
    """An error of a right kind that does not say which place of which file it is of."""

    def __init__(self, text: str, of: TidelineError) -> None:
        super().__init__(text)
        self.__traceback__ = of.__traceback__


def signature(error: BaseException) -> str:
    """What tells findings apart: the kind of error, and the innermost line of ours that raised."""
    at = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not at or _OURS.search(file):
            at = f" {Path(file).name}:{line}"
    return f"{type(error).__name__}{at}"
