# Sourced by the images of MariaDB and MySQL when they make their data folder: the database `shop`,
# and what the user that captures it may do. The statements are those of the README.
docker_process_sql --database=mysql <<'SQL'
CREATE DATABASE shop;
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO tideline;
GRANT SELECT ON shop.* TO tideline;
GRANT CREATE, SELECT, INSERT, UPDATE ON tideline.* TO tideline;
SQL
