"""`vcdeploy plugin`: compile the TensorRT plugin on this machine, and say where it is."""

from __future__ import annotations

import click

from vcdeploy.errors import VcdeployError


@click.group()
def plugin() -> None:
    """Build the TensorRT plugin, or say where it is."""


@plugin.command(short_help="Compile the plugin on this machine.")
@click.option("--arch", metavar="LIST",
              help="GPU architectures, such as 80,90, or native: this one's. [default: all nvcc knows]")  # fmt: skip
def build(arch: str | None) -> None:
    """Compile the plugin with the nvcc and the TensorRT headers that are here; no GPU is needed.

    nvcc may be the CUDA toolkit's or that of the pip packages. The headers are looked for in TENSORRT_INCLUDE_DIR and
    the usual folders. The library goes to the user's cache, where exports and the tensorrt backend find it.
    """
    from vcdeploy.gpu.plugin_build import build as compile_plugin

    click.echo(compile_plugin(arch, lambda line: click.echo(line, err=True)))


@plugin.command(short_help="Print where the plugin is.")
@click.option("--register", is_flag=True,
              help="The one that registers itself when loaded, for Triton, LD_PRELOAD and such.")  # fmt: skip
def path(register: bool) -> None:
    """Print where the plugin is; where it is not, how to get it, with exit code 1."""
    from vcdeploy.gpu import plugin_files

    name = plugin_files.REGISTERING if register else plugin_files.CORE
    found = plugin_files.library(name)
    if found is None:
        rule = ", which is built only where libnvinfer is found" if register else ""
        raise VcdeployError(f"there is no {name} here{rule}: {plugin_files.HOW_TO_BUILD}")
    click.echo(found)
