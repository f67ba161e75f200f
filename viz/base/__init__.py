"""Shared by all pictures: figures, numbers as words, escaping, the theme."""
