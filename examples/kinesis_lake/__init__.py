"""A lake: events through Kinesis, into Parquet files by day."""
