"""Where programs run: devices, variables, the executor."""
