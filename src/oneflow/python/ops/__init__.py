"""What programs import from ``oneflow.python.ops``; the names are those of the public namespaces."""
