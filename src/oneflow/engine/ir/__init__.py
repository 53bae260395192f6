"""The logical graph: blobs, the trace that records them, their text form."""
