"""Types of variables under the import path that programs name in annotations."""
