"""The scenarios and default settings that the commands of `vcdeploy bench` show in --help; quick to import."""

SCENARIOS = {
    "step": "one symbol/call, the state carried from call to call",
    "sequence": "many symbols/call",
    "generate": "a loop on self-generated symbols, one sequence",
}
ROUNDS, QUICK_ROUNDS = 30, 5
UNIT, DIM, M_RANGE = "vcgru", 1024, (0.2, 0.6)  # of a synthetic model
REPORT_DIM, REPORT_ROUNDS = 1024, 10  # of the full report
