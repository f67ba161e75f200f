"""Journeys through the real page in Chromium. A package, so that its servers and its browser end with it."""
