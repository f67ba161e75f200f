"""A run as a document of its own."""
