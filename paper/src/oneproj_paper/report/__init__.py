"""Records of runs as one page beside the paper's numbers, with figures and tables.

Everything here reads records: it runs nothing, imports no torch, and computes nothing
but means, standard deviations and ratios of means. The same records give the same
bytes.
"""
