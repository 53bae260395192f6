"""What is done with a picture before a network sees it, one module per kind; ``preprocessing_factory`` finds it by the
network's name."""
