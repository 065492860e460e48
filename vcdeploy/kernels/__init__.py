"""The torch.library ops of the variable units: one sequence per call, forward and backward."""

from vcdeploy.kernels.ops import OPS

__all__ = ["OPS"]
