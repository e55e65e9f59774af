"""Will it fit, how long does a step take, and what should be set?"""
