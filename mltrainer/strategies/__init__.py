"""Strategies: what a training does beside its task. Each is a module; `joined.py` joins them, `strategy.py` says what one is."""
