"""Benchmarks, imported as vcdeploy.bench: a model at hand against dense ones of its size, in one interleaved run.

| module | subject |
|---|---|
| subject | the model at hand, made up or trained, and what it reads |
| contenders | what runs a model, and what can't here |
| scenarios | what is timed: steps, sequences, generating |
| traffic | the weights a step reads, in bytes |
| worker | the process of one contender |
| interleave | the workers' rounds |
| report | from times to a document and tables |
| machine | what it ran on |
| training | the speed of training |
| paper | the paper's experiments, rerun |
| gpu_check, gpu_trial | everything that needs a GPU, and one trial of it |
"""
