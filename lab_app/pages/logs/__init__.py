"""The page *Your logs*."""
