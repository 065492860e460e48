"""Training: configuration, objective, schedules, training loop, checkpoints, multi-process training."""
