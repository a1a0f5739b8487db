"""How well monitors see what a policy does: correlations, weighted errors and g-mean^2, with intervals."""
