"""Video files as images: frames at regular intervals, decoded with PyAV (extra `video`)."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from ..errors import UnreadableImage, UserError, install_hint

SUFFIXES = frozenset([".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".3gp", ".mts"])
MAX_SIDE = 720  # pixels of the shorter side of a frame in memory; networks read less


@dataclass(frozen=True)
class VideoFrame:
    """A frame of a video, which can be used like any other image.

    Attributes:
        path: The video.
        seconds: Time of the frame.
        jpeg: The frame, encoded.
    """

    path: Path
    seconds: float
    jpeg: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.path}#t={self.seconds:g}"

    @property
    def group(self) -> str:
        """Identifier of the video. Frames of a video resemble each other and therefore belong in the same fold."""
        return str(self.path)


def parse_interval(text: str) -> float:
    """Return an interval in seconds.

    Args:
        text: For example `1s`, `500ms`, `2min` or `0.5`.

    Raises:
        UserError: The text is not an interval.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|)", text.strip())
    seconds = float(match[1]) * {"ms": 0.001, "s": 1, "min": 60, "": 1}[match[2]] if match else 0.0
    if seconds <= 0:
        raise UserError(f"The interval between frames is {text!r}: write for example 1s, 500ms or 2min.")
    return seconds


def is_video(path: Path) -> bool:
    """Return whether a file has the suffix of a video."""
    return path.suffix.lower() in SUFFIXES


def read_frames(path: Path, every: float) -> list[VideoFrame]:
    """Decode frames of a video.

    Args:
        path: The video.
        every: Interval between frames in seconds. The first frame is always included.

    Raises:
        UserError: PyAV is not installed.
        UnreadableImage: The file is not a video, or is damaged.
    """
    try:
        import av
    except ImportError as error:
        raise UserError(f"{path.name} is a video, which needs the extra video: {install_hint('video')}.") from error
    frames: list[VideoFrame] = []
    try:
        with av.open(str(path)) as container:
            container.streams.video[0].thread_type = "AUTO"
            due = 0.0
            for frame in container.decode(video=0):
                seconds = float(frame.time or 0)
                if seconds + 1e-6 >= due:
                    image = _upright(frame.to_image(), getattr(frame, "rotation", 0))
                    frames.append(VideoFrame(path, round(seconds, 3), _encoded(image)))
                    due = (int((seconds + 1e-6) / every) + 1) * every
    except Exception as error:  # PyAV raises errors of many types, IndexError if there is no video stream
        reason = (
            "it contains no video" if isinstance(error, IndexError) else getattr(error, "strerror", "") or str(error)
        )
        raise UnreadableImage(f"The video {path}", reason) from error
    if not frames:
        raise UnreadableImage(f"The video {path}", "it contains no frames")
    return frames


def _upright(image: Image.Image, rotation: int) -> Image.Image:
    """Return a frame in the orientation of a player. `rotation` is in degrees, counterclockwise."""
    turns = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
    turn = turns.get(rotation % 360)
    return image if turn is None else image.transpose(turn)


def _encoded(image: Image.Image) -> bytes:
    if min(image.size) > MAX_SIDE:
        scale = MAX_SIDE / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2)
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=95, subsampling=0)
    return out.getvalue()
