"""Download of datasets, and the summary of a dataset for `cscct data check`. No other module downloads data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import registry as sources

CIFAR_URL = "https://www.cs.toronto.edu/~kriz"

_WHY_NOT = {
    "digits": "it is part of scikit-learn",
    "folder": "it consists of your own images: set --data-dir to their folder",
    "tiny-imagenet": "get tiny-imagenet-200.zip from cs231n.stanford.edu, extract it, then see "
    "`cscct data check tiny-imagenet --data-dir DIR`",
    "cub200": "get CUB_200_2011.tgz from its authors (Caltech), extract it, then see "
    "`cscct data check cub200 --data-dir DIR`",
    "imagenet-subset": "the licence of ImageNet does not allow it. Get ILSVRC 2012 from image-net.org, "
    "then see `cscct data check imagenet-subset --data-dir DIR`",
}


def fetch(
    name: str,
    data_dir: Path | None,
    progressbar: bool,
    warn: Callable[[str], None],
    base_url: str = CIFAR_URL,
    md5: str | None = None,
) -> Path:
    """Download a dataset and check that it loads. A complete file is not downloaded again.

    Args:
        name: Name of the dataset.
        data_dir: Target folder; None for the default folder.
        progressbar: Whether a progress bar is shown.
        warn: Called with each warning.
        base_url: URL of the folder with the file.
        md5: Expected checksum; None for that of the published archive.

    Returns:
        The downloaded file, or the folder of a dataset of Hugging Face.

    Raises:
        UserError: If the dataset cannot be downloaded.
    """
    if not sources.find(name).fetchable:
        reason = _WHY_NOT.get(name, "it has no download source")
        raise UserError(f"Dataset {name!r} cannot be fetched: {reason}.")
    if name.startswith(sources.HUGGINGFACE):
        from .datasets.huggingface import fetch_huggingface

        return fetch_huggingface(name, data_dir)
    if name not in ("cifar10", "cifar100"):
        raise UserError(f"Dataset {name!r} cannot be fetched: only cifar10, cifar100 and hf:NAME can be downloaded.")
    from .datasets import cifar

    layout = cifar.layout_of(name)
    folder = sources.locate(data_dir)[0]
    target = folder / layout.archive
    _download(f"{base_url.rstrip('/')}/{layout.archive}", target, md5 or layout.archive_md5, progressbar)
    request = sources.LoadRequest(data_dir=folder, skip_bad_images=False, test_fraction=0.2, seed=0, warn=warn)
    cifar.load_archive(target, request, layout)
    if extracted := cifar.find_extracted(sources.locate(folder, layout.folder), layout):
        warn(f"The extracted files in {extracted} are used before the archive: delete them if damaged.")
    return target


def _download(url: str, target: Path, md5: str, progressbar: bool) -> None:
    """Download a file with pooch.

    pooch writes to a temporary file and renames it when the checksum is correct, so an interrupted download leaves no
    file that looks complete.
    """
    import pooch
    import requests

    progressbar = progressbar and find_spec("tqdm") is not None  # required by pooch
    pooch.get_logger().setLevel(logging.WARNING)  # "Downloading ..." must not appear with --quiet
    try:
        pooch.retrieve(url, known_hash=f"md5:{md5}", fname=target.name, path=target.parent, progressbar=progressbar)
        return
    except requests.HTTPError as error:
        response = error.response
        reason = f"the server answered {response.status_code} {response.reason}" if response is not None else str(error)
    except requests.Timeout:
        reason = "the server did not answer in time"
    except requests.exceptions.ChunkedEncodingError:
        reason = "the connection was interrupted"
    except requests.ConnectionError:
        reason = "the server cannot be reached"
    except requests.RequestException as error:
        reason = str(error)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror or error}): choose another folder with --data-dir."
        ) from error
    except ValueError as error:
        if "hash" not in str(error):  # pooch has no specific exception
            raise
        reason = "the downloaded file does not have the published checksum"
    raise UserError(
        f"The download of {url} failed: {reason}. Try again later, or download the file in another way and save it as "
        f"{target}."
    )


def check(name: str, request: sources.LoadRequest) -> dict[str, Any]:
    """Load a dataset and return a summary.

    Args:
        name: Name of the dataset.
        request: Options of the loader. Warnings are part of the summary; `request.warn` is not called.

    Returns:
        Plain values for display or JSON.

    Raises:
        UserError: If the dataset is unknown, missing, damaged or invalid.
    """
    import numpy as np

    from .base import ArrayImages

    warnings: list[str] = []
    dataset = sources.load(name, replace(request, warn=warnings.append))
    summary: dict[str, Any] = {"name": dataset.name, "classes": len(dataset.class_names)}
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        per_class = np.bincount(split.labels, minlength=len(dataset.class_names))
        summary[f"{part}_images"] = len(split)
        summary[f"{part}_images_per_class"] = {"min": int(per_class.min()), "max": int(per_class.max())}
    images = dataset.train.images
    summary["image_size"] = list(images.pixels.shape[1:]) if isinstance(images, ArrayImages) else None
    summary["warnings"] = warnings
    return summary
