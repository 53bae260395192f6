"""The modules that FastNN's programs import: ``dataset_utils``, ``cluster_utils``, ``hooks_utils``, ``misc_utils`` and
``optimizer_utils``."""
