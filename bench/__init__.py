"""Benchmarks, imported as vcdeploy.bench: models at hand against dense ones of their size, in interleaved runs.

| module | content |
|---|---|
| run | one run, from models to a document |
| full, design | the full report: how its parts are measured and kept, and what they are |
| summary | the full report as words, tables and figures |
| jsonl | files of JSON Lines |
| compare, fits | what has changed between two runs; exponents |
| models | the model at hand, synthetic or trained, and what it reads |
| engines, peers | what runs a model, and what can't here; int8 and compiled forms of dense ones |
| scenarios | what is timed: steps, sequences, generating |
| traffic | the weights a step reads, in bytes |
| worker | the process of one engine |
| interleave | the workers' rounds |
| report | from times to a document and tables |
| machine, energy | what it ran on, and what that took |
| training | the speed of training |
| paper | the paper's experiments, rerun |
| gpu_check, gpu_trial | everything that needs a GPU, and one trial of it |
"""
