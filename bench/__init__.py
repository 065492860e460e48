"""Benchmarks, imported as vcdeploy.bench: what is timed, how it is timed, and the reports."""
