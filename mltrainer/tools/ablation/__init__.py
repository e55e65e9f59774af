"""A config and variants of it, trained on the same fresh seeds."""
