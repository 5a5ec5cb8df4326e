"""What is minimised and what is constrained: averages over data, and functions."""
