"""What runs in the audit's own process; imports torch."""
