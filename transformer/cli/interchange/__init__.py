"""Models to and from other programs: ``import``, ``export`` and ``push``."""
