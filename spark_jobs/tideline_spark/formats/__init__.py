"""Table formats: the operations that jobs use on a target, and a folder for each format."""
