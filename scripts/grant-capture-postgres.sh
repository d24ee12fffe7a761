# Sourced by the image of PostgreSQL when it makes its data folder: the role that captures the database
# `shop`, and what it may do. The statements are those of `tideline init --sql`, for a pipeline `shop`.
# psql reads the password by itself: as an argument everybody who lists processes would see it.
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
\set password `cat /run/secrets/source_password`
CREATE ROLE tideline LOGIN REPLICATION PASSWORD :'password';
GRANT USAGE ON SCHEMA public TO tideline;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO tideline;
CREATE PUBLICATION tideline_shop FOR TABLES IN SCHEMA public WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true);
SQL
