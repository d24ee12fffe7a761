"""BigQuery as a table format of the jobs: they read and fold, BigQuery runs the MERGE."""
