"""The DAGs of the pipeline whose settings ``TIDELINE_CONFIG`` names.

For several pipelines in one Airflow, call it once for each, with its settings and a prefix.
"""

from tideline_airflow.dag_set import tideline_dags

tideline_dags()
