"""What a model costs and where it spends: counted operations, traces, plots."""
