"""MySQL and MariaDB: reading the binlog, dumping chunks, checking the server."""
