"""A run of a method: its loop, its stops, its state to resume from."""
