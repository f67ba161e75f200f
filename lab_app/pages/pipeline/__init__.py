"""The page of the lab: a pipeline, its methods, its runs."""
