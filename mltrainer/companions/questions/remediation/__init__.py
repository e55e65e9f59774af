"""Which change of the config cures the diagnostics' findings?"""
