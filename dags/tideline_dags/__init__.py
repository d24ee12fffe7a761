"""The DAGs of a pipeline, for Airflow."""
