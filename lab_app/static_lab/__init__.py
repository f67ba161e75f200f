"""The lab as a folder of files that needs no server: ``kvlab space static``."""
