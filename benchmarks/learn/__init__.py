"""Promises of the estimators for new rows, counted over many draws of the table."""
