"""Files that are written back with other samples: a module per format reads the original and writes the copy."""
