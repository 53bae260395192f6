"""SBP rules: how each aten op runs on parts of its tensors. One family a file; ``table`` holds them all."""
