"""The tasks the shipped model was trained on, and the program that trained it."""
