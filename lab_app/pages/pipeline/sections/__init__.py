"""Measurements beside runs, folded away on the pipeline's page."""
