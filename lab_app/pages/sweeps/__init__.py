"""The page on sweeps."""
