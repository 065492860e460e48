"""The native module, built from plugins/cpu."""

def cpu_features() -> dict[str, bool]:
    """The instruction sets the kernels care about, and whether this processor has each."""
