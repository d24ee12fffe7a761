"""``tideline publish``: run a publisher, or give it a command."""

from __future__ import annotations

from tideline.settings import Settings
from tideline_console.output import say
from tideline_console.tables import print_table


def run(settings: Settings, name: str, *, until_idle_s: float | None) -> None:
    """Publish until a signal to stop, or until idle; raises the publisher's errors."""
    from tideline_publish.app import run_publisher

    run_publisher(settings, name, until_idle_s=until_idle_s)


def pause(settings: Settings, name: str, *, paused: bool) -> None:
    """Pause the publisher, or let it go on, and say what follows from that."""
    from tideline_publish import control

    entry = control.pause(settings, name, paused=paused)
    seq = entry.position.seq
    if paused:
        say(f"{name} is paused behind sequence {seq}: parts behind it are kept until it goes on")
    else:
        say(f"{name} goes on behind sequence {seq}, by the worker that runs or is started")


def move(settings: Settings, name: str, to: str) -> None:
    """Move the publisher, and say where to."""
    from tideline_publish import control

    entry = control.move(settings, name, to)
    place = f"sequence {entry.position.seq} (manifest {entry.position.manifest_number})"
    if entry.paused:
        say(f"{name} is at {place}, and still paused: `tideline publish {name} --resume`")
    else:
        say(f"{name} goes on behind {place}, by the worker that runs or is started")


def preview(settings: Settings, name: str) -> None:
    """Print what the publisher would publish now."""
    from tideline_publish import control

    found = control.preview(settings, name)
    if found.uncaptured:
        tables = ", ".join(found.uncaptured)
        say(f"no table that is captured is like {tables}: `tideline status` lists them")
    if found.to_seq < found.from_seq:
        say(f"{name} has published all that is captured, to sequence {found.to_seq}")
        return
    say(f"{name} would publish sequences {found.from_seq} to {found.to_seq}:")
    print_table(
        ("table", "operation", "events"),
        [(table, op, count) for (table, op), count in sorted(found.events.items())],
    )
    print_table(
        ("table", "bytes", "largest event"),
        [(table, count, found.largest[table]) for table, count in sorted(found.bytes.items())],
    )
