"""Which batch size? Real steps of doubling sizes, until memory, data or time ends."""
