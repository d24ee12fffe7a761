"""The forms of events, behind one protocol (`base`)."""
