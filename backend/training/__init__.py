"""How the shipped weights and link tokens were made and are evaluated; nothing served needs it."""
