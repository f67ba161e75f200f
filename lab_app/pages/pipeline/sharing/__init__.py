"""Links, files and stored runs, on the pipeline's page."""
