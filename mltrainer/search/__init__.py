"""The hyperparameter search: studies, their trials, and the workers that train them."""
