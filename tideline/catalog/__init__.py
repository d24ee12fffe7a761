"""Catalogs that give the warehouse's tables names: Hive's metastore, Unity Catalog, AWS Glue."""
