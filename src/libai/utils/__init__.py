"""What the rest stands on: ranks, logs, events, checkpoints."""
