"""How does the loss look around a trained model, and how sharply does it curve there?"""
