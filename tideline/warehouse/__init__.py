"""Warehouse tables as the planner reads them: no JVM, milliseconds; a folder for each format."""
