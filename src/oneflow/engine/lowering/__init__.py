"""From an assigned joint graph to the program of each rank."""
