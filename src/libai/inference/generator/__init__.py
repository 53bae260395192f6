"""Generation of text: greedy, by sampling, by beam search."""
