"""Op rows: how each op computes. One file per family; ``table.ROWS`` is all of them.

A row's ``compute`` is a pure torch function. It runs three times in a row's life: on meta tensors while a job
is traced (shape and dtype inference), on fake tensors while the joint graph is made, never while a job runs:
a program holds only the aten ops that ``compute`` used.
"""
