"""Constants of operators under the import path that programs of 2019 and 2020 use."""
