"""The command line, ``kvlab``: one file for each command or family of commands."""
