"""What commands print: lines for people, and texts for programs.

Names of tables and columns, reasons and a server's words are others' text. Whatever is printed goes
through here, through `tideline_console.tables`, or is an error's (`tideline_console.errors`), so
that no text of others clears the screen, or begins a line that looks like one of ours.
"""

from __future__ import annotations

import sys

import msgspec

from tideline.contract.printable import printable, printable_json


def say(line: str = "", *, error: bool = False) -> None:
    """Print one line at once, `printable`; ``error``: on standard error."""
    print(printable(line), file=sys.stderr if error else sys.stdout, flush=True)


def write_document(document: object, *, indent: int = 0) -> None:
    """Print a document as JSON, in one line or indented."""
    text = msgspec.json.encode(document)
    if indent:
        text = msgspec.json.format(text, indent=indent)
    write_json(text.decode())


def write_json(text: str) -> None:
    """Print JSON: the same values, in printable characters."""
    sys.stdout.write(printable_json(text) + "\n")


def write_text(text: str) -> None:
    """Print a text that a program reads (SQL, CSV, metrics): as it is, but for a terminal, which is
    shown its lines as `say` does."""
    if sys.stdout.isatty():
        text = "".join(printable(line) + "\n" for line in text.rstrip("\n").split("\n"))
    sys.stdout.write(text)
    sys.stdout.flush()
