"""What Airflow's plugin loader finds here, where the provider is not installed.

The loader executes every file of this folder under its bare name, so everything but this is kept
from it by ``.airflowignore`` and imported as a package.
"""

from tideline_airflow.plugin import TidelinePlugin

__all__ = ["TidelinePlugin"]
