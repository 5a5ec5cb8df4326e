"""Nonconvex constraints: models at the present point; the answer is nearest locally."""
