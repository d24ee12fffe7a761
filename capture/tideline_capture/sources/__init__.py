"""Log sources. Only `tideline_capture.app` names a concrete one."""
