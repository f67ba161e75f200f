"""Serving the page: requests that are let in, downloads, health, offline use, borrowed GPUs."""
