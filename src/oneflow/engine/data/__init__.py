"""The input pipeline: loaders, decoders, sampling order."""
