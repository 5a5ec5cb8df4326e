"""The paper's six experiments as data, their runs, and the records of these."""
