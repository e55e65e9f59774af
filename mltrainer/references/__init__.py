"""Reference models: plain models fitted on the splits of a run, to compare its metrics with."""
