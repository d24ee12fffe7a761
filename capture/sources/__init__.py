"""Log sources. Only `capture.app` names a concrete one."""
