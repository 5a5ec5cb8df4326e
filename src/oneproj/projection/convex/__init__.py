"""Convex constraints: cuts stay valid, and the answer is the nearest point."""
