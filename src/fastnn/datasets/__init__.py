"""Data sets: a file per data set with its ``parse_fn``, ``dataset_factory``, and the programs that download and
convert."""
