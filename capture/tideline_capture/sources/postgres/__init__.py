"""PostgreSQL as a source: logical decoding (pgoutput), watermark dumps, and their preflight."""
