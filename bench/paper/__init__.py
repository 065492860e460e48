"""The paper's experiments, rerun: Jernite, Grave, Joulin, Mikolov, "Variable Computation in Recurrent Neural Networks".

| module | content |
|---|---|
| experiment | what an experiment is: rows to train alike, at two scales |
| experiments | the experiments, a file each, in the order of their worth |
| matching | the size of a unit that costs as much as another |
| run | from a row and a seed to a result: train, or go on, and evaluate |
| results | the files of results, a run each |
| report | results as Markdown, the paper's figures beside them |
| latency | microseconds a character of the trained models of a text, measured in one interleaved run |
| tracing | the figures of m over a text, from the trained models of an experiment |
| plots | results as figures |
"""
