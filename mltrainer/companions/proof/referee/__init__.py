"""The referee: rows that an author never had, and their division from those that the author gets (`rows.py`, `hold_out.py`)."""
