"""Table formats: the verbs that jobs use of a target, and a folder for each format."""
