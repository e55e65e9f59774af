"""A program that trains by itself: started under observation, run twice, and compared."""
