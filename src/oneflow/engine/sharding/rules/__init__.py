"""SBP rules: how each aten op runs on parts of its tensors. One file per family; ``table`` holds them all."""
