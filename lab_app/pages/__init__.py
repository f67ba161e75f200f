"""The lab's pages, a folder each."""
