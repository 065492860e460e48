"""Benchmarks, imported as vcdeploy.bench: variable models vs dense ones of the same size, in interleaved runs.

| module | content |
|---|---|
| defaults | scenarios and default settings, as --help shows them |
| run | one interleaved run, from models to a JSON document |
| full, design | the full report: measuring and storing its parts; their definition |
| summary | the full report as text, tables and figures |
| jsonl | JSON Lines files |
| compare, fits | changes between two runs; fitted exponents |
| models | the model under test, synthetic or trained, and its input |
| engines, peers | what runs a model, and why it can't run here; int8 and compiled dense models |
| scenarios | what is timed: steps, sequences, generation |
| traffic | bytes of weights a step reads |
| worker | the process of one engine |
| interleave | the rounds over all workers |
| report | from times to a document and tables |
| machine, energy | description of the machine; its energy counters |
| training | training speed |
| paper | the paper's experiments |
| gpu_check, gpu_trial | everything that needs a GPU, and one trial of it |
"""
