"""`python -m vcdeploy`: the same as the command `vcdeploy`."""

from vcdeploy.cli import main

main(prog_name="vcdeploy")
