"""The settings of outputs, each with its own section."""
