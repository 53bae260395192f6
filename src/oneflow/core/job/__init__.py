"""Types of settings under the import paths that programs name in annotations."""
