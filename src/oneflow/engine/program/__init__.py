"""Programs as plain data: sections, node notes, step declarations, serialization, digests."""
