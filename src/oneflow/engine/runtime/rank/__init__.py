"""The state of one rank: variables, readers, programs."""
