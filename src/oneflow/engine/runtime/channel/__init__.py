"""The authenticated channel between processes."""
