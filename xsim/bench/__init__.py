"""``python -m xsim.bench``: how fast a model runs, forward and backward, and how fast other engines run the same mechanism."""
