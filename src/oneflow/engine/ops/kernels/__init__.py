"""Functions that compiled programs call and that are not op rows."""
