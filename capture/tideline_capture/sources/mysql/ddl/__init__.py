"""DDL of the binlog: what a logged statement means for tables, their columns and existing rows."""
