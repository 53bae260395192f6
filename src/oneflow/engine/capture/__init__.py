"""From a job, module or function to a joint graph of aten ops."""
