"""Endpoints for programs: what a call may say, the calls themselves, their answers."""
