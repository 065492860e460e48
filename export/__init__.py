"""Export, imported as vcdeploy.export: from a checkpoint to files that a runtime loads.

Nothing here needs PyTorch but vcdeploy.export.parity, the check against it.
"""

from vcdeploy.format.functions import attach_functions
from vcdeploy.format.graph import assemble, build

__all__ = ["assemble", "attach_functions", "build"]
