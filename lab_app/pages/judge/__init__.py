"""The page on judges and the candidates before them."""
