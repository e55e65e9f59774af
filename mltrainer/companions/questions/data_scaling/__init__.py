"""Would more data or more epochs help? Learning curves as power laws."""
