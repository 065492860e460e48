"""`vcdeploy bench`: a table of subcommands, each imported only when it is run."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from vcdeploy.cli import Commands, Entry

COMMANDS = {
    "run": Entry("vcdeploy.cli.bench_run:run", "Measure MODEL against dense models of its size (the default)."),
    "report": Entry("vcdeploy.cli.bench_report:report", "Measure everything and write a report."),
    "compare": Entry("vcdeploy.cli.bench_compare:compare", "Compare two earlier runs."),
    "train": Entry("vcdeploy.cli.bench_train:train", "Measure the speed of training."),
    "serve": Entry("vcdeploy.cli.bench_serve:serve", "Measure a server of MODEL under load."),
    "paper": Entry("vcdeploy.cli.bench_paper:paper", "Rerun the paper's tables and figures."),
}


class Bench(Commands):
    """A group whose default subcommand is `run`; a model in a folder called run or train is ./run or ./train."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--full" in args and args[0] not in COMMANDS:
            args = ["report", *(each for each in args if each != "--full")]
        elif not args and ctx.resilient_parsing:
            pass  # completion: see shell_complete
        elif not args or args[0] not in (*COMMANDS, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete subcommands, then the models or options of `run`."""
        run = self.get_command(ctx, "run")
        assert run is not None
        if incomplete.startswith("-"):
            return run.shell_complete(ctx, incomplete)
        return self.complete_commands(incomplete) + run.params[0].shell_complete(ctx, incomplete)


@click.group(cls=Bench, entries=COMMANDS)
def bench() -> None:
    """Measure the speed of MODEL against dense models of its size.

    `vcdeploy bench [MODEL]` is short for `vcdeploy bench run [MODEL]`, and `vcdeploy bench --full` for `vcdeploy bench
    report`. Each subcommand has its own --help.

    \b
      vcdeploy bench english --quick      a pretrained model, in under a minute
      vcdeploy bench --dim 1024           a VCGRU-1024 with random weights
      vcdeploy bench report -o report     all units, precisions and sizes: about seven minutes
    """
