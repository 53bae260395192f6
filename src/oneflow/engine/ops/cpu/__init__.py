"""CPU kernels: fused norms, Winograd and prediction convolutions."""
