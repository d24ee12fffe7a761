"""Values of MySQL and MariaDB, from their stored and text forms to Arrow."""
