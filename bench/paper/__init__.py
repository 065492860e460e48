"""The paper's experiments: Jernite, Grave, Joulin, Mikolov, "Variable Computation in Recurrent Neural Networks".

| module | content |
|---|---|
| experiment | the definition of an experiment: rows with the same training settings, at two scales |
| experiments | the experiments, one file each, most important first |
| matching | the size of a unit with the same cost as another |
| run | from a row and a seed to a result: train or resume, and evaluate |
| results | the result files, one line per run |
| report | results as Markdown, next to the paper's figures |
| latency | µs/char of the trained models of a text, measured in one interleaved run |
| tracing | figures of m over a text, from the trained models of an experiment |
| plots | results as figures |
"""
