"""Pictures of anchor pools: what they hold, weigh, decide and cost."""
