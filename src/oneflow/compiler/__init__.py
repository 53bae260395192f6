"""From a logical graph to a program: pure functions, graph to graph. ``pipeline.compile_rank`` is the readable list of
steps."""
