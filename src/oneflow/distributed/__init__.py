"""Starting the processes of a world of peers: ``python -m oneflow.distributed.launch``."""
