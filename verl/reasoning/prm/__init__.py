"""Process rewards: labels for steps, models that judge steps, their training and their evaluation."""
