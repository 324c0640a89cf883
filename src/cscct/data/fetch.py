"""The only part of the program that downloads, and the summary that `cscct data check` shows."""

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
CIFAR_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"

_WHY_NOT = {
    "digits": "it comes with scikit-learn, so it is there already",
    "folder": "it is made of your own images: name their folder with --data-dir",
    "imagenet-subset": "the licence of ImageNet does not allow it. Get ILSVRC 2012 from image-net.org, "
    "then see `cscct data check imagenet-subset --data-dir DIR`",
}


def fetch(
    name: str,
    data_dir: Path | None,
    progressbar: bool,
    warn: Callable[[str], None],
    base_url: str = CIFAR_URL,
    md5: str = CIFAR_MD5,
) -> Path:
    """Download a dataset, check that it loads, and say where it is. A complete file is not fetched again."""
    if not sources.find(name).fetchable:
        why = _WHY_NOT.get(name, "its author gave no way to do so")
        raise UserError(f"Dataset {name!r} cannot be fetched: {why}.")
    if name != "cifar100":
        raise UserError(f"Dataset {name!r} says it can be fetched, but this program knows only cifar100.")
    from .datasets import cifar

    folder = sources.locate(data_dir)[0]
    target = folder / cifar.ARCHIVE
    _download(f"{base_url.rstrip('/')}/{cifar.ARCHIVE}", target, md5, progressbar)
    request = sources.LoadRequest(data_dir=folder, skip_bad_images=False, test_fraction=0.2, seed=0, warn=warn)
    cifar.load_archive(target, request)
    if extracted := cifar.find_extracted(sources.locate(folder, cifar.FOLDER)):
        warn(f"The extracted files in {extracted} are used before the archive: delete them if damaged.")
    return target


def _download(url: str, target: Path, md5: str, progressbar: bool) -> None:
    """pooch writes to a temporary file beside the target and moves it there only when its checksum is right,
    so an interrupted download leaves nothing that looks complete."""
    import pooch
    import requests

    progressbar = progressbar and find_spec("tqdm") is not None  # pooch cannot draw one without it
    pooch.get_logger().setLevel(logging.WARNING)  # its "Downloading ..." lines would break --quiet
    try:
        pooch.retrieve(url, known_hash=f"md5:{md5}", fname=target.name, path=target.parent, progressbar=progressbar)
        return
    except requests.HTTPError as error:
        answer = error.response
        why = f"the server answered {answer.status_code} {answer.reason}" if answer is not None else str(error)
    except requests.Timeout:
        why = "the server did not answer in time"
    except requests.exceptions.ChunkedEncodingError:
        why = "the connection broke off"
    except requests.ConnectionError:
        why = "there is no connection to the server"
    except requests.RequestException as error:
        why = str(error)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror or error}): name another folder with --data-dir."
        ) from error
    except ValueError as error:
        if "hash" not in str(error):  # pooch has no class of its own for this
            raise
        why = "what arrived does not have the published checksum"
    raise UserError(
        f"The download of {url} failed: {why}. Try again later, or get the file by other means and put it at {target}."
    )


def check(name: str, request: sources.LoadRequest) -> dict[str, Any]:
    """Load a dataset and sum it up. Warnings go into the summary instead of to `request.warn`."""
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
