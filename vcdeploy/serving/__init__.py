"""Serving: an engine that runs many streams in batched steps, and the HTTP server on top of it.

engine.py and what it uses know nothing about HTTP; app.py puts it all together.
"""
