"""The page on agents that work in a loop."""
