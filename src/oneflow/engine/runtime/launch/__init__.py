"""Starting processes and finding each other."""
