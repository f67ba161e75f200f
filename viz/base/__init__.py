"""What all pictures share: figures, numbers as words, escaping, the theme."""
