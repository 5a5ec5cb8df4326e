"""The one projection: from a point to the nearest feasible point."""
