"""The places that events go to, behind one protocol (`base`)."""
