"""What was asked and what came of it, with the arithmetic on it. Free of torch and scipy."""
