"""How the tests of configs draw their examples: a busy machine draws them slowly, which says nothing about a config."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
