"""Which change of the config cures what the diagnostics found?"""
