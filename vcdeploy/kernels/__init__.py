"""torch.library ops of the three units: the native kernels where they exist, the reference elsewhere."""

from vcdeploy.kernels.ops import vcgru, vclstm, vcrnn

__all__ = ["vcgru", "vclstm", "vcrnn"]
