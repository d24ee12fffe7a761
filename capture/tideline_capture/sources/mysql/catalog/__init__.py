"""The catalog of MySQL and MariaDB: tables, columns, problems, and rounds over it."""
