"""A mesh and an SBP signature for every node of a joint graph."""
