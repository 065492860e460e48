"""Running trained models: one interface, a module a backend, sampling on top."""
