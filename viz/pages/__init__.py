"""Views that one page alone shows."""
