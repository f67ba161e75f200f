"""Visitors and what is kept for each: sessions, the queue before the model, classrooms."""
