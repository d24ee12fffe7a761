"""The names of BigQuery tables: of a target by its url, and of our own tables beside it."""

from __future__ import annotations

import re
from typing import NamedTuple

from tideline.contract.errors import InvariantBroken

PLACE_SETTING = "spark.tideline.bigquery"
"""The setting of Spark, of ours, with the `BigQueryPlace` of sessions for BigQuery tables."""
OWN = "_tideline_"
"""What the names of our own tables begin with; no target's does (`layout.encode_name`)."""
STAGED = "staged"
"""The word for tables of staged rows, before a part of each one's own."""
LIFE = "_tl_stream_"
"""The beginning of the name of a streamed table's life column."""
_LOG = "log"
_LOG_NAME = re.compile(rf"{OWN}{_LOG}_(.+)")
_STAGED_NAME = re.compile(rf"{OWN}{STAGED}_[0-9a-f]{{16}}_(.+)")
_HEX = re.compile(r"[~%]([0-9A-F]{2})")
_OTHER = re.compile(r"[^A-Za-z0-9_]")


class TableName(NamedTuple):
    """The name of a table."""

    project: str
    dataset: str
    table: str

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return ".".join(f"`{part}`" for part in self)

    def __str__(self) -> str:
        return ".".join(self)

    def own(self, word: str) -> TableName:
        """Return the name of a table of ours beside this one, in the same dataset."""
        return self._replace(table=f"{OWN}{word}_{self.table}")

    @property
    def log(self) -> TableName:
        """The table with the commits to this one."""
        return self.own(_LOG)


def target_of_log(table: str) -> str | None:
    """Return the target beside which ``table`` is the log; None for another table."""
    found = _LOG_NAME.fullmatch(table)
    return None if found is None else found[1]


def target_of_staged(table: str) -> str | None:
    """Return the target for which ``table`` has staged rows; None for another table."""
    found = _STAGED_NAME.fullmatch(table)
    return None if found is None else found[1]


def name_of(url: str) -> TableName:
    """Return the name of the table at ``url``.

    Letters, digits and ``_`` stay, which is all that a dataset's name may have; others are ``_x``,
    their code in hex, and ``_``. The folders of a table that is deeper make one dataset.
    """
    _, _, path = url.partition("://")
    project, *folders, table = path.split("/")
    if not folders:
        raise InvariantBroken(f"{url} is not the url of a table")
    return TableName(project, "__".join(map(_identifier, folders)), _identifier(table))


def _identifier(segment: str) -> str:
    """Return a segment of a url, whose hex codes (`layout.encode_name`) become ours."""
    text = _HEX.sub(lambda found: f"_x{found[1]}_", segment)
    return _OTHER.sub(lambda found: f"_x{ord(found[0]):02X}_", text)
