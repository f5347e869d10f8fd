"""The embedded store: an in-memory ring, flushed to Parquet segments."""
