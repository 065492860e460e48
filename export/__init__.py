"""Export, imported as vcdeploy.export: from a checkpoint to files that runtimes can load.

Only vcdeploy.export.parity, the check against PyTorch, needs PyTorch.
"""

from vcdeploy.format.functions import attach_functions
from vcdeploy.format.graph import assemble, build

__all__ = ["assemble", "attach_functions", "build"]
