"""Values that every package uses: dtypes, placements, SBP, tensor specs, errors. No I/O."""
