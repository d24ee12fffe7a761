"""The commands' options and help; what a command does is in a module of its own."""
