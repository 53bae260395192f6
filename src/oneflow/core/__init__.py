"""Values the whole package speaks in: dtypes, placements, SBP, tensor specs, errors. No I/O."""
