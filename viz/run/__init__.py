"""Pictures of one run: its verdict, its answers, its tokens, its times."""
