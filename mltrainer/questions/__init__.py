"""Questions about a training, a folder each: its command, what it asks, what measures it, its page and its figures."""
