"""Which samples is a step, an epoch or a finding about, and how does the model do on them?"""
