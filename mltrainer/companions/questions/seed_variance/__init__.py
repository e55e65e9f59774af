"""How much of a difference between two runs is due to their seeds?"""
