"""Models at work: pipelines from inputs to answers, and the generation of text."""
