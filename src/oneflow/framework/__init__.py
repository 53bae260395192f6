"""Import paths of the end of 2021, when ``oneflow.python.framework`` had become ``oneflow.framework``."""
