"""Candidates put before a judge: prompts, verdicts, orders, batches, cost, gate training."""
