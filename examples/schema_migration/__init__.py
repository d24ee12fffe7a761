"""A table moves to another place and another shape while it is written."""
