"""Logs of other people's agents: what reuse would save, who sent what before, why prefixes missed."""
