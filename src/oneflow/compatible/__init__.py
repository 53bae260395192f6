"""Names under which the job-function API lived later."""
