"""Job functions: their configuration, signature, results, and the session that runs them."""
