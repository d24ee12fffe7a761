"""The plugin for Airflow's plugin loader, where the provider is not installed.

The loader executes every file of this folder under its bare name, so ``.airflowignore`` hides
everything else from it, which is imported as a package.
"""

from tideline_airflow.plugin import TidelinePlugin

__all__ = ["TidelinePlugin"]
