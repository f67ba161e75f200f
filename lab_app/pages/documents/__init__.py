"""The page on documents that are encoded apart."""
