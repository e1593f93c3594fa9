"""Durable memory of how far a job got, and the deltas computed from it. Import the modules by name."""
