"""The description of each DAG on Airflow's page."""

from __future__ import annotations

DAGS = {
    "merge": """
Brings the warehouse's tables up to date, by schedule.

All tables are planned and merged in one Spark job. Skipped where nothing is new.
""",
    "repair": """
Reads rows again from the source and puts them into the warehouse.

Whole tables; or, of one table, given keys, a range of keys, or both; or the rows of a range of
time. The source is neither locked nor paused. A whole table's repair also removes rows that the
source does not have; repairing keys removes those of the keys that are gone; a range by itself
removes nothing. The DAG `…_control` pauses, slows down or cancels a repair that runs.
""",
    "backfill": """
Reads the rows of a time interval again, for Airflow's own backfill.

In its dialog (*Trigger*, *Backfill*) tick *Override parameters on existing runs*: without that
Airflow 3.3 does not pass on what is typed, on new runs neither.

Each run reads the rows of the tables again whose time column lies in its data interval, and merges
them. Running an interval twice changes nothing; nothing is deleted but keys that are given and that
the source lacks. Where the settings name tables, each interval is also read once by schedule when
it ends; without them such runs are skipped.
""",
    "verify": """
Compares warehouse tables with their source, and names what differs.

The worker reads the tables in chunks between watermarks, Spark compares them with the warehouse
column by column at that very position; nothing is paused. What changed meanwhile is read and
compared a
second time. The task `report` fails with the names of tables that differ; the DAG `…_repair` mends
them, or `tideline verify --repair`.
""",
    "rebuild": """
Builds a table again from the chain, as a shadow table, and swaps them.

Switches the mode that a table is kept in, heals one that a dump cannot heal, and leads one past a
change, or a new generation, before which its merges stop. The live table is read meanwhile, and
merged between the steps. Only when triggered.

With a table format it moves the table to that instead: a copy with all that it holds, proven equal.
""",
    "maintain": """
Keeps the warehouse's tables small, once a day.

Rewrites small files, and files with many deleted rows, where what was measured says that it pays;
removes files that left a table's newest version longer ago than `maintain.vacuum_hours`. No tables:
all.
""",
    "aggregate": """
Writes documents of several tables, the aggregates in the settings, to tables of their own.

Each table then has what a join at the source gave at one place of its log: the newest up to which
all members are merged. Documents that are as they were are not written. Skipped where nothing has
changed, or where a member waits for a merge or a dump. Only when triggered, unless
`TIDELINE_AGGREGATE_SCHEDULE` says otherwise; `merged`: after merges.
""",
    "control": """
Pauses, resumes or cancels dumps while they run, or changes their throttle.

Of the requests whose ids are given, or of all. A dump that is paused stays paused until it is
resumed, whatever restarts. The tasks that wait for it go on waiting; one whose request is cancelled
fails and says so.
""",
}
