"""A process of a search that trains one run after the other."""
