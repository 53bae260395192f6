"""OFRecord messages."""
