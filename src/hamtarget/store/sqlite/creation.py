"""Making a store's folder: whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hamtarget._files import make_folders, sync_folder, umask
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import FileError
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.tables.database import DATABASE_NAME, create_database, translated

ENCODER_NAME = "encoder"


def create_folder(target: Path, settings: Settings, encoder: Encoder | None) -> None:
    """Create the folder of an empty store, on disk.

    Raises:
        FileError: it is there already, and not an empty folder.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target} is there and is not an empty folder; choose another, or Store.open it")
    with translated(target):
        make_folders(target.parent)
    # Made beside its place and renamed as a whole: there is never half a store.
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        if encoder is not None:
            encoder.save(folder / ENCODER_NAME)
        with translated(folder / DATABASE_NAME):
            create_database(folder / DATABASE_NAME, settings.as_texts(), FIRST_NAMED_ROW)
        # mkdtemp gives the owner alone access.
        folder.chmod(0o777 & ~umask())
        sync_folder(folder)
        os.rename(folder, target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_folder(target.parent)
