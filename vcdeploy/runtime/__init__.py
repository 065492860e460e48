"""Inference: one interface to all backends, with sampling on top. model.py has load and Model."""
