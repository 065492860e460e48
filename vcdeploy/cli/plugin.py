"""`vcdeploy plugin`: compile the TensorRT plugin on this machine, or print its path."""

from __future__ import annotations

import click

from vcdeploy.errors import VcdeployError


@click.group()
def plugin() -> None:
    """Build the TensorRT plugin, or print its path."""


@plugin.command(short_help="Compile the plugin on this machine.")
@click.option("--arch", metavar="LIST",
              help="GPU architectures, such as 80,90, or native for this GPU. [default: all nvcc knows]")  # fmt: skip
def build(arch: str | None) -> None:
    """Compile the plugin with the installed nvcc and TensorRT headers; no GPU is needed.

    nvcc may come from the CUDA toolkit or from the pip packages. The headers are searched for in
    TENSORRT_INCLUDE_DIR and the usual folders. The library goes to the user's cache, where exports and the tensorrt
    backend find it.
    """
    from vcdeploy.gpu.plugin_build import build as compile_plugin

    click.echo(compile_plugin(arch, lambda line: click.echo(line, err=True)))


@plugin.command(short_help="Print the path of the plugin.")
@click.option("--register", is_flag=True,
              help="The library that registers itself when loaded, for Triton, LD_PRELOAD and the like.")  # fmt: skip
def path(register: bool) -> None:
    """Print the path of the plugin; if there is none, how to build it, with exit code 1."""
    from vcdeploy.gpu import plugin_files

    name = plugin_files.REGISTERING if register else plugin_files.CORE
    found = plugin_files.library(name)
    if found is None:
        rule = ", which is built only where libnvinfer is found" if register else ""
        raise VcdeployError(f"there is no {name} here{rule}: {plugin_files.HOW_TO_BUILD}")
    click.echo(found)
