"""Files and record formats."""
