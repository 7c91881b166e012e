"""`hamtarget encode`: codes of images, vectors or texts, as text or as a file of numpy."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hamtarget.cli.inputs.records import open_records, open_text_records
from hamtarget.cli.terminal.arguments import AsJson, Batch, IdColumn, Key, Model, Source, TextColumn, Workers
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import as_line
from hamtarget.errors import CorruptFileError, ImageError

if TYPE_CHECKING:
    from hamtarget.cli.inputs.record_codes import EncodedRecords


def encode(
    model: Model,
    source: Source = "-",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write packed codes, uint8, to this npy file.")
    ] = None,
    as_json: AsJson = False,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    key: Key = None,
    batch: Batch = 4096,
    workers: Workers = 0,
) -> None:
    """Turn inputs into codes: one line of hexadecimal digits for each, in order.

    MODEL may be the name of a picture hash that needs no training: phash, dhash, pdq, copies64, copies256. The digits
    are those that the packages imagehash and pdqhash write. simhash64, and the folder of a sentence model, take texts.

    With --json, a line also has the id and the payload; `hamtarget add` and `hamtarget search` read such lines from
    their standard input.
    """
    import numpy as np

    from hamtarget._files import write_atomically
    from hamtarget.cli.inputs.record_codes import encode_records
    from hamtarget.encoders import open_encoder
    from hamtarget.encoders.texts.text_inputs import takes_texts

    encoder = open_encoder(model)
    records = (
        open_text_records(source, text_column=text_column, id_column=id_column, on_broken=_refuse)
        if takes_texts(encoder)
        else open_records(source, key=key)
    )
    parts = []
    done = 0
    with progress_on_stderr("Encoding") as tell:
        for some in records.batches(batch):
            encoded = encode_records(some, encoder, n_bits=encoder.n_bits, workers=workers)
            if encoded.broken:
                # Skipping one image would shift every later row.
                raise ImageError(next(iter(encoded.broken.values())))
            done += len(some)
            if out is not None:
                parts.append(encoded.codes)
            else:
                typer.echo("\n".join(_lines(encoded, as_json)))
            tell(done, records.total)
    if out is not None:
        codes = np.concatenate(parts) if parts else np.empty((0, encoder.n_bits // 8), dtype=np.uint8)
        buffer = io.BytesIO()
        np.save(buffer, codes, allow_pickle=False)
        write_atomically(out, buffer.getvalue())
        typer.echo(f"{len(codes):,} codes of {encoder.n_bits} bits: {out}")


def _refuse(reason: str) -> None:
    # Skipping one row would shift every later one.
    raise CorruptFileError(reason)


def _lines(encoded: EncodedRecords, as_json: bool) -> list[str]:
    digits = [code.tobytes().hex() for code in encoded.codes]
    if not as_json:
        return digits
    return [
        as_line({"id": record.id, "code": code, "payload": record.payload})
        for record, code in zip(encoded.records, digits, strict=True)
    ]
