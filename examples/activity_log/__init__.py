"""An activity log for audit: who changed what and when, from the database's own log."""
