"""The scorecard's rows on numbers of processes: one training, shared by 1, 2 or 4 of them."""
