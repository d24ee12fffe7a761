"""The commands' options and help; the work of each command is in a separate module."""
