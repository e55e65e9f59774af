"""Reference models: what scikit-learn's plain models reach on a run's own splits, beside the run."""
