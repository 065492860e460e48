"""vcdeploy: recurrent models that spend only the computation each step needs."""

__version__ = "0.1.0"
