"""Pictures of judges, their verdicts and risk gates."""
