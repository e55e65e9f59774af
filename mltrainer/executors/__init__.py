"""Executors: how processes are started, listened to, stopped, and killed with all that they started."""
