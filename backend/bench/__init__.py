"""``kvlab bench``: times of the reuse path beside dense, and beside what the bytes alone would take."""
