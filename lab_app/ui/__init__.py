"""What the pages share: widgets, words, results, the look."""
