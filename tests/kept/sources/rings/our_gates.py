"""What this team asks of a baseline beside the handbook."""


def good_enough(evidence, settings):
    """Compare the baseline's accuracy with the team's own bound."""
    value = evidence.run.metrics["accuracy"]
    holds = value >= settings["at_least"]
    return {"verdict": "pass" if holds else "fail", "evidence": {"accuracy": value}, "mend": "bring more data"}
