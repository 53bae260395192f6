"""Import paths of 2019 to 2021, when the Python files lay in a folder of this name."""
