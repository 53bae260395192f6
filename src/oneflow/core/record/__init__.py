"""OFRecord messages under the import path that programs writing data sets use."""
