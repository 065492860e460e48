"""The reference implementation: scheduler and cells in plain PyTorch. Every kernel is tested against it."""
