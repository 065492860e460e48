"""Training: configuration, objective, schedules, the loop, checkpoints, more than one process."""
