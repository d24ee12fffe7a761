"""The binlog: received, framed, decoded in bulk, and cut into transactions."""
