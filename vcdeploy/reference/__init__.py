"""The reference: the scheduler and the cells in plain PyTorch. Every kernel is tested against it."""
