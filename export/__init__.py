"""Export, imported as vcdeploy.export: from a checkpoint to files that a runtime loads."""
