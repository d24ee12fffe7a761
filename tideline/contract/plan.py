"""The merge plan: document (d), and its inputs (`contract.planning` makes it).

A plan says exactly which parts bring which table from one manifest to another. It is stored before
it is run, so that a retry reads the same input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from tideline.contract.description import PlannedDescription
from tideline.contract.document import (
    DocumentReader,
    checksum_holds,
    with_checksum,
    written_features,
    written_version,
)
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Copied
from tideline.contract.modes import Mode
from tideline.contract.moves import MOVES, PlannedMove
from tideline.contract.open_state import TableState
from tideline.contract.part import PartCounts
from tideline.contract.planning.stops import Policy
from tideline.contract.schema import TableSchema
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import NO_LAYOUT, TableLayout

PLAN_VERSION = 1
FEATURES: frozenset[str] = frozenset({MOVES})
"""The optional features that this version understands."""


class PlannedPart(PartCounts, frozen=True, omit_defaults=True):
    """A part to read, at ``{store_url}/{key}``; the counts are checked against what is read."""

    key: str
    schema: str
    rows: int
    operations: Mapping[str, int]
    bytes: int
    first_seq: int
    last_seq: int


class PlannedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema event in a plan's range: rows from ``seq`` on have the schema ``after``, older ones
    ``before`` (empty: not known)."""

    seq: int
    after: str
    steps: tuple[ColumnStep, ...] = ()
    before: str = ""


class PlannedEnd(msgspec.Struct, frozen=True, omit_defaults=True, rename={"delete_before": "upto"}):
    """A row last seen at or below ``delete_before`` ends at ``seq``, if nothing up to there changed
    it.

    A truncate; or a full dump that finished, at its manifest's last sequence. ``time_us`` is the
    source's clock in that manifest (µs UTC).
    """

    seq: int
    delete_before: int
    time_us: int | None = None


class TablePlan(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "from_manifest": "a",
        "from_seq": "a_seq",
        "from_digest": "a_digest",
        "to_manifest": "b",
        "to_seq": "b_seq",
        "to_digest": "b_digest",
        "delete_before": "floor",
        "start_seq": "begins",
    },
):
    """Brings ``target`` from the applied manifest ``from_manifest`` to ``to_manifest``.

    ``from_seq`` and ``to_seq`` are the last sequences of those manifests, ``from_digest`` and
    ``to_digest`` their digests: a number alone may be another chain's, after a store was restored
    from its backup. Empty where not known, and ``from_digest`` with ``create``. ``schema`` is the
    table's schema at ``to_manifest``; ``schemas`` has every fingerprint that the parts and
    ``changes`` use. ``delete_before``: target rows with a ``_tl_seq`` up to it that the plan does
    not write again are deleted, and folded rows with such a one dropped. It is the largest of the
    ``first_low_seq`` of full dumps finished after ``from_manifest``, up to ``to_manifest``, and of
    (truncate seq - 1); None without either. ``truncates`` are the sequences of truncates in the
    range, ascending: no value is filled across. ``create``: the target has no applied version of
    this generation yet, so that ``from_manifest`` is where the generation's history begins, or the
    full dump that it is built from; a target that has one is then not where the plan begins.
    ``replace``: as ``create``, and a table of an older generation lies at the target: its content
    is dropped.
    ``key_min``/``key_max``: bounds of the first key column over all parts, None when unknown.
    ``app_id``: its id in the target's commits, ``pipeline/incarnation/table/generation``.
    ``complete_through_us``: the source's clock up to which the target then lacks nothing, None when
    that is not known. ``dropped``: columns that the source had before and the target may still
    have; rows that are written hold NULL there. ``mode``: how the target is kept. ``changes``: the
    schema events in the range, ascending. ``ignored``: kinds of steps that the target does not
    follow. ``drop_columns``: a column that the source dropped goes from the target too.
    ``start_seq``: what has sequences up to this one is not the target's. ``ends``: every truncate
    and finished full dump of the range, ascending. ``build``: how often ``tideline rebuild`` has
    rebuilt the generation's target; a target of another build is not touched. ``copied``: of a
    table without a key, the copy of it that is its state at ``delete_before``; all of that lies in
    the range. ``within_us``: changes count as late that are not queryable so long after their
    commit at the source; 0: that is not measured. ``deletion_vectors``: whether the target's files
    may have them; a new one is created so. ``layout``: the target's, or that of a new one.
    ``without``: features of Delta that must not be switched on, because a reader that the settings
    name lacks them.
    """

    table: str
    target: str
    schema: TableSchema
    schemas: Mapping[str, TableSchema]
    parts: tuple[PlannedPart, ...]
    from_manifest: int
    from_seq: int
    to_manifest: int
    to_seq: int
    app_id: str
    generation: int = 0
    delete_before: int | None = None
    truncates: tuple[int, ...] = ()
    create: bool = False
    replace: bool = False
    key_min: str | None = None
    key_max: str | None = None
    complete_through_us: int | None = None
    dropped: tuple[str, ...] = ()
    mode: Mode = Mode.CURRENT
    changes: tuple[PlannedChange, ...] = ()
    ignored: tuple[StepKind, ...] = ()
    drop_columns: bool = False
    within_us: int = 0
    start_seq: int = 0
    ends: tuple[PlannedEnd, ...] = ()
    build: int = 0
    copied: Copied | None = None
    deletion_vectors: bool = True
    from_digest: str = ""
    to_digest: str = ""
    layout: TableLayout = NO_LAYOUT
    without: tuple[str, ...] = ()


class PlannedSwap(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "shadow": "beside",
        "to_manifest": "b",
        "to_seq": "b_seq",
        "delete_before": "floor",
        "live_to_manifest": "live_b",
        "to_digest": "b_digest",
    },
):
    """Puts the shadow table at ``shadow``, a rebuilt one, into the place of the live one at
    ``target``.

    Both must have applied manifest ``to_manifest``, each under its own app id, and hold the same,
    unless ``accept_differences``; ``to_seq`` is that manifest's last sequence, ``to_digest`` its
    digest. ``build`` and ``mode`` are of the shadow table, ``live_build`` and ``live_mode`` of the
    live one. ``schema`` is the table's at ``to_manifest``; ``delete_before`` is where the newest
    full dump began that had finished by then. ``superseded``: shadow tables that abandoned rebuilds
    have left. ``live_to_manifest``: the live table has applied this manifest and not
    ``to_manifest``, because it cannot continue from there: it is of an older generation, stands
    before a change that it does not take, or has applied another chain. It is not compared then:
    the shadow table holds what the chain says. None: it stands at ``to_manifest``. ``without``:
    features of Delta that the live table is rid of where its new rows do not need them.
    """

    table: str
    target: str
    shadow: str
    schema: TableSchema
    to_manifest: int
    to_seq: int
    app_id: str
    live_app_id: str
    build: int
    live_build: int = 0
    mode: Mode = Mode.CURRENT
    live_mode: Mode = Mode.CURRENT
    delete_before: int | None = None
    superseded: tuple[str, ...] = ()
    accept_differences: bool = False
    live_to_manifest: int | None = None
    to_digest: str = ""
    without: tuple[str, ...] = ()


class Plan(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"to_manifest": "b", "delayed": "held"},
):
    """The work of one merge run. ``delayed``: tables that wait, with the reason.

    A quarantined or blocked table stands in both when something captured before it stopped is
    merged.
    ``swaps``: rebuilt tables that take the place of the live ones. ``tail`` is the newest manifest
    when the plan was made: with ``to_manifest`` below ``tail`` more may be waiting.
    ``descriptions``: targets whose description (comments, NOT NULL) is to change, those of
    ``tables`` and others that nothing is merged into. ``strayed``: those of ``delayed`` whose
    targets have not applied this chain; until an operator has them rebuilt nothing is merged into
    them. ``moves``: steps by which tables become tables of another format.
    """

    plan_id: str
    pipeline: str
    incarnation: str
    store_url: str
    to_manifest: int
    tables: tuple[TablePlan, ...]
    tail: int = 0
    delayed: Mapping[str, str] = msgspec.field(default_factory=dict)
    swaps: tuple[PlannedSwap, ...] = ()
    descriptions: tuple[PlannedDescription, ...] = ()
    strayed: tuple[str, ...] = ()
    version: int = written_version(PLAN_VERSION)
    requires: tuple[str, ...] = written_features()
    moves: tuple[PlannedMove, ...] = ()

    @property
    def nothing_to_do(self) -> bool:
        """Return whether a merge has nothing to run."""
        return not (self.tables or self.swaps or self.descriptions or self.moves)

    @property
    def takes_over(self) -> bool:
        """Return whether a table takes the live one's place, which is to stand still then."""
        return bool(self.swaps) or any(not move.copy for move in self.moves)


class Applied(msgspec.Struct, frozen=True):
    """The state of a table's target, as the planner read it.

    ``manifest``: the transaction version under the app id of the table's present generation, None
    when that has none; ``seq``: the last sequence of the manifest that `start_of` gives (0 for 0).
    ``exists``: a table of this pipeline and incarnation lies at the target.
    ``clear_until``: an open state proves that no manifest from ``manifest`` up to this one holds
    anything of the table, so these need not be given.
    ``went_back``: the content was set back behind its transaction version (RESTORE); only a full
    dump that began after ``seq`` makes it right.
    ``problem``: why the target cannot be merged into at all.
    ``mode``, ``build``, ``deletion_vectors`` and ``layout`` are the target's, or what a new one is
    to have; ``without``: as in `TablePlan`.
    ``columns_seq``: steps of schema events up to it are taken in the target, although its rows may
    not be that far yet.
    ``begin_manifest``, ``begin_seq``: a target that has nothing applied may be built from what
    comes after this manifest with sequences above this one, because a full dump began there that
    has finished since.
    ``digest``: of the chain's manifest ``manifest``, which the target has applied; "" for none.
    ``strayed``: the ``problem`` is that the target has not applied this chain.
    """

    manifest: int | None = None
    seq: int = 0
    exists: bool = False
    clear_until: int = 0
    went_back: bool = False
    problem: str | None = None
    begin_manifest: int = 0
    begin_seq: int = 0
    mode: Mode = Mode.CURRENT
    build: int = 0
    columns_seq: int = 0
    deletion_vectors: bool = True
    digest: str = ""
    strayed: bool = False
    layout: TableLayout = NO_LAYOUT
    without: tuple[str, ...] = ()


class PlanScope(msgspec.Struct, frozen=True):
    """The request for a plan: its id, where things lie, its caps, and which tables (None: all).

    The caps bound what one plan reads; a single manifest above them is still taken whole.
    ``policies``: by table how its target reacts to schema changes; others follow all.
    ``targets``: by table its target's url, where that is no folder below ``warehouse_url``.
    """

    plan_id: str
    store_url: str
    warehouse_url: str
    parts_max: int
    bytes_max: int
    tables: tuple[str, ...] | None = None
    policies: Mapping[str, Policy] = msgspec.field(default_factory=dict)
    targets: Mapping[str, str] = msgspec.field(default_factory=dict)


STANDING_PROPERTY = "tideline.standing"
"""The table property that repeats a commit's metadata, in case the table's log has lost that."""


class CommitMetadata(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "from_manifest": "a",
        "to_manifest": "b",
        "read_version": "looked_at",
        "unhealed": "unproven",
        "unhealed_seq": "unproven_seq",
    },
):
    """The record of a commit of ours in the table's own log, in text.

    It is read back without Spark: how far the table is merged. ``seq`` is the last sequence of
    manifest ``to_manifest``, ``digest`` its digest, by which a reader knows the chain that was
    applied; commits of older versions have none. ``unhealed`` names external commits that no full
    dump has healed yet, found when everything up to ``unhealed_seq`` was applied. ``pending``:
    whether rows may still lack values. ``read_version``: the version of the table that the run read
    and judged with all its history; external commits between that and this commit are not judged.
    """

    app_id: str
    pipeline: str
    incarnation: str
    plan_id: str
    from_manifest: int
    to_manifest: int
    seq: int
    complete_through_us: int | None = None
    unhealed: tuple[str, ...] = ()
    unhealed_seq: int = 0
    pending: bool = False
    read_version: int | None = None
    digest: str = ""

    def text(self) -> str:
        r"""Return JSON that ends in a checksum (`with_checksum`), with ``\u0024`` for ``$``, which
        JSON reads alike: Spark replaces ``${env:…}`` by an environment variable."""
        # In JSON of ours a ``$`` can only stand in a text.
        return with_checksum(msgspec.json.encode(self).replace(b"$", b"\\u0024")).decode()

    @classmethod
    def parse(cls, text: str | None) -> CommitMetadata | None:
        """Parse what a commit's user metadata holds; None when it holds something else,
        CorruptData when its checksum does not match."""
        try:
            commit_metadata = None if text is None else _COMMIT_METADATA.decode(text)
        except msgspec.MsgspecError:
            return None
        if commit_metadata is not None and not checksum_holds(str(text).encode()):
            raise CorruptData(
                "what a target says of the manifest that it has applied is damaged",
                hint="restore its log from a copy, or remove the table and merge",
            )
        return commit_metadata


def app_id(pipeline: str, incarnation: str, table: str, generation: int, build: int = 0) -> str:
    """Return the id, in a target's commits, of a table's generation or of its ``build``-th
    rebuild."""
    return of_build(f"{pipeline}/{incarnation}/{_in_app_id(table)}/{generation}", build)


def _in_app_id(table: str) -> str:
    """Encode ``table`` for an app id, which may be put into a setting of Spark's session; there
    ``${…}`` stands for an environment variable or another setting.

    A name with such a beginning has ``~24`` for ``$``, ``~7E`` for ``~`` and a dot in front, with
    which no table's text begins: every other name stays itself, and no two become the same.
    """
    if "${" not in table:
        return table
    return "." + table.replace("~", "~7E").replace("$", "~24")


def of_build(app: str, build: int) -> str:
    """Return the app id of a rebuild, from the one of the generation itself."""
    return f"{app}.{build}" if build else app


def build_of(app: str) -> int:
    """Return the rebuild that an app id belongs to; 0 for the generation itself."""
    return int(app.rpartition("/")[2].partition(".")[2] or 0)


def newest_generation(apps: Iterable[str], app: str, build: int | None = None) -> int:
    """Return the newest generation of the table of ``app`` that any of ``apps`` belongs to; -1 for
    none. ``build``: those of this rebuild only.

    A target keeps what it has applied also where it is replaced, so this shows of a target which
    generation it is of; and of a rebuilt one, that of the table that it replaced.
    """
    base = re.escape(app.rpartition("/")[0])
    builds = r"(?:\.\d+)?"
    if build is not None:
        builds = rf"\.{build}" if build else ""
    named = re.compile(rf"{base}/(\d+){builds}(?:/columns)?")
    found = (named.fullmatch(one) for one in apps)
    return max((int(one[1]) for one in found if one), default=-1)


def start_of(state: TableState, manifest: int | None, begin_manifest: int = 0) -> int:
    """Return the manifest after which a table's plan begins, given the applied one (None: none yet,
    and then ``begin_manifest`` as in `Applied`)."""
    return max(state.generation_manifest, begin_manifest) if manifest is None else manifest


def encode_plan(plan: Plan) -> bytes:
    return msgspec.json.encode(plan)


def decode_plan(raw: bytes, at: str = "") -> Plan:
    """Decode a plan; CorruptData for bytes that are not one, or that need a newer reader."""
    return _READER.read(raw, at)


_READER = DocumentReader(Plan, version=PLAN_VERSION, features=FEATURES, name="merge plan")
_COMMIT_METADATA = msgspec.json.Decoder(CommitMetadata)
