"""`hamtarget serve`: serves a store over HTTP, with a page to search it."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import note
from hamtarget.errors import InputError

_TOKEN_VARIABLE = "HAMTARGET_TOKEN"


def serve(
    store: Annotated[
        str | None, typer.Argument(metavar="[STORE]", help="Folder of a store, or its address postgresql://...")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve the bundled images from a temporary store.")] = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; one that others can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port; 0: any free one.")] = 8080,
    images: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Folder whose images may be shown; repeatable.")
    ] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Let requests put and delete items.")] = False,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"File with the token; else the variable {_TOKEN_VARIABLE}.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tokens with names and roles, as hamtarget token makes it."),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let every program of this machine change the store.")
    ] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Host name that requests may use; repeatable.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates of TLS in PEM; with --tls-key.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Proxy whose X-Forwarded-For is believed; repeatable."),
    ] = None,
    access_log: Annotated[
        str | None, typer.Option(metavar="FILE", help="File that gets a line of JSON for each request; -: stdout.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Threads of one batch of searches.")] = 1,
    workers: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Processes that share the address and the store.")
    ] = 1,
) -> None:
    """Serve a store over HTTP, with a page to search it: endpoints at /docs, counters at /metrics.

    Only this machine can reach it, and nobody can change it, unless you say otherwise. SIGTERM and Ctrl-C let
    running requests finish.
    """
    if (store is None) != demo:
        raise InputError("give either a STORE or --demo, one of them")
    from hamtarget.serve import ServiceSettings, run
    from hamtarget.store.defaults import is_made_for_probing

    token = os.environ.get(_TOKEN_VARIABLE)
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
    with ExitStack() as stack:
        folders = list(images or [])
        if store is None:
            from hamtarget.serve.demo_store import make_demo

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hamtarget-demo-"))
            with progress_on_stderr("Making the demo store") as tell:
                demo_store, demo_images = make_demo(Path(folder), progress=tell)
            store = str(demo_store)
            folders.append(demo_images)
        settings = ServiceSettings(
            host=host,
            port=port,
            token=token or None,
            tokens_file=tokens,
            no_token=no_token,
            host_names=tuple(host_name or ()),
            writable=writable,
            image_folders=tuple(folders),
            tls_cert=tls_cert,
            tls_key=tls_key,
            trusted_proxies=tuple(trusted_proxy or ()),
            access_log=access_log,
            threads=threads,
        )
        for caution in settings.cautions:
            note(f"hamtarget: {caution}")
        opened = open_store(store, read_only=not writable)
        if opened.vectors is not None:
            note("hamtarget: this store keeps vectors: POST /v1/nearest with k and recall suits it best")
        elif is_made_for_probing(opened):
            note("hamtarget: the model was trained for probing: POST /v1/probe suits this store best")
        if workers == 1:
            run(opened, settings, announce=_announce)
        else:
            from hamtarget.serve.transport.workers import run_workers

            # Each process opens it for itself.
            opened.close()
            run_workers(store, settings, workers=workers, announce=_announce)


def _announce(address: str) -> None:
    typer.echo(f"Serving at {address} (endpoints at {address}docs). Ctrl-C ends.")
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        if everywhere in address:
            reached = address.replace(everywhere, f"//{socket.gethostname()}:")
            note(f"hamtarget: from other machines open {reached}, or the address by which they know this one")
