"""Pictures of measurements beside runs."""
