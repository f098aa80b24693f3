"""Downloads of public files; the only module that imports pooch."""

from __future__ import annotations

import sys
from pathlib import Path

from dpsweep.accounting.errors import BadInput


def cache_folder(name: str) -> Path:
    """The folder that keeps downloaded files of the data set `name` between sweeps."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("dpsweep", appauthor=False)) / name


def download(url: str, *, md5: str, folder: Path) -> Path:
    """The file at `url`, stored in `folder` under its own name and downloaded only if no verified copy is there.

    Guarantee: the returned file has the checksum `md5`; a file with another checksum is discarded.
    Errors: `OSError` if the server cannot be reached or `folder` cannot be written; `BadInput` for a wrong checksum.
    """
    import pooch

    name = url.rpartition("/")[2]
    browser = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16)
    try:
        path = pooch.retrieve(url, known_hash=f"md5:{md5}", fname=name, path=folder, downloader=browser)
    except OSError:
        raise
    except ValueError as error:
        raise BadInput(
            f"Expected md5={md5} of {url}, got another file, which was discarded: try again later, "
            f"or put {name} into a folder of yours and name that by DATA=<folder> or DPSWEEP_DATA."
        ) from error
    return Path(path)
