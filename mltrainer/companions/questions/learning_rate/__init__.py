"""Which learning rate? Real steps at a rate that grows, until the loss diverges."""
