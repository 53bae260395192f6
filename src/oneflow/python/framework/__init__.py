"""What programs import from ``oneflow.python.framework``; the names are those of the public namespaces."""
