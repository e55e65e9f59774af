"""What does each component of a config contribute?"""
