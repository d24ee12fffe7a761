"""BigQuery tables: their names, the client of their project, and the log of our commits to each."""
