"""Malformed, slow and ordinary requests to a server whose model is changed by commands at the same time.

No response is a server error, predictions continue, the log contains no traceback, and the server stops soon after it
is terminated.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from model_folders import changes_of, make_model, photo_of
from watch import CaseResult, ChildProcess, Kind, Outside, start_command

TOKEN = "a-token-of-the-attack"
READY, END = 120.0, 60.0  # seconds that the server may take to begin and to end, on a busy machine
READ = (  # the paths of GET requests
    *("/", "/login", "/api/model", "/api/staged", "/api/job", "/api/state", "/api/queue", "/api/map", "/api/photos"),
    *("/api/photos?label=red&predicted=green", "/api/photos?label=red&limit=1000", "/api/photos?offset=1000000000"),
    *("/api/photos?limit=99999999999999999999", "/api/photos?label=%ff%00", "/api/photos?label=" + "x" * 3000),
    *("/api/photos/{id}", "/api/photos/{id}?large=true", "/api/photos/{id}?large=maybe", "/api/photos/0000"),
    *("/api/photos/..%2f..%2fnotes.txt", "/api/photos/" + "f" * 64, "/api/photos/%00", "/api/staged/%00"),
    *("/api/staged/..%2f..", "/api/staged/{staged}/thumbnail?large=true", "/api/staged/{staged}/thumbnail"),
    *("/api/queue/0", "/api/queue/1", "/api/queue/-1", "/api/queue/99999999999999999999", "/api/queue/..%2f0.png"),
    *("/api/exemplars/0/0", "/api/exemplars/99/-1", "/api/exemplars/1e3/0", "/../etc/passwd", "//", "*"),
)
WRITE = (  # and of POST requests
    *("/api/classify", "/api/classify?top=%ff", "/api/explain", "/api/staged", "/api/learn", "/api/undo", "/login"),
    *("/api/restore", "/api/forget", "/api/rename", "/api/merge", "/api/photos/move", "/api/photos/keep"),
    *("/api/photos/remove", "/api/export", "/api/staged/%00", "/" + "x" * 3000),
)
METHODS = ("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "get", "X" * 300, "")
CHARSETS = ("punycode", "undefined", "idna", "utf-16", "utf-7", "base64", "nonsense", "\u00ff", "")
TYPES = ("application/json", "multipart/form-data", "multipart/form-data; boundary=", "text/plain", "", "\u00ff")
HOSTS = ("localhost", "127.0.0.1", "evil.example", "", "[", "[::1]", "a@b", "localhost\t", "\u00ff")
JSON = (
    *(b"{}", b"[", b"null", b'{"version": 1e999}', b'{"version": NaN}', b'{"version": 1}', b'{"classes": ["red"]}'),
    *(b"\xff", b"[" * 50_000, b'{"ids": ' + b"[" * 50_000, b'{"ids": "{id}"}', b'{"ids": ["{id}"]}', b'{"ids": [{}]}'),
    *(b'{"ids": ["{id}", "{id}"], "label": "green"}', b'{"ids": ["../../x"], "label": "../x"}'),
    *(b'{"ids": ["\\ud800aaaa"], "label": "\\udfff"}', b'{"ids": ["0000"], "label": null}'),
    *(b'{"classes": ["red", "red"], "into": "green"}', b'{"classes": ["red"], "into": "red"}'),
    *(
        b'{"classes": "red", "into": {"a": 1}}',
        b'{"old": "red", "new": "a\\u0000b"}',
        b'{"old": "red", "new": "green"}',
    ),
    *(b'{"format": "torchscript"}', b'{"format": ["onnx"]}', b'{"format": "../x"}'),
)


def _request(rng: random.Random, image: bytes, ids: dict[str, str]) -> bytes:
    """Something like a request. ids: of photos that exist, by the names that paths and JSON texts use."""
    if rng.random() < 0.15:
        return rng.randbytes(rng.randint(1, 3000))
    kind = rng.choice(TYPES)
    known = b'"%s"' % ids["id"].encode()
    text = rng.choice(JSON).replace(b'"{id}"', known)
    body = rng.choice((b"", text, text, rng.randbytes(rng.randint(0, 5000))))
    if rng.random() < 0.4:
        kind = f"multipart/form-data; boundary=x; charset={rng.choice(CHARSETS)}"
        body = _multipart(rng, image)
    length = rng.choice((len(body),) * 6 + (0, 1, len(body) + 50, 10**9, 10**30, -1))
    method, paths = rng.choice((("GET", READ), ("POST", WRITE)))
    method, version = rng.choice(METHODS) if rng.random() < 0.2 else method, rng.choice(("1.1",) * 6 + ("1.0", "9"))
    lines = [
        f"{method} {rng.choice(paths).format(**ids)} HTTP/{version}",
        f"Host: {rng.choice(HOSTS) if rng.random() < 0.2 else 'localhost'}",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
    ]
    if rng.random() < 0.8:
        lines.append(f"Authorization: Bearer {TOKEN if rng.random() < 0.9 else 'wrong'}")
    if rng.random() < 0.1:
        lines.append(
            rng.choice(("Transfer-Encoding: chunked", "Expect: 100-continue", "Upgrade: websocket", "Cookie: =;"))
        )
    request = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
    return request[: rng.randrange(len(request))] if rng.random() < 0.2 else request


def _multipart(rng: random.Random, image: bytes) -> bytes:
    content = rng.choice((image, image[: len(image) // 2], rng.randbytes(500), b"", image + rng.randbytes(200)))
    label = rng.choice((b"red", b"new", b"", b"\xff\xfe", b"a\0b", b"x" * 200, b"../x", b"a\nb"))
    name = rng.choice((b"a.png", b"../../x", b"\xff", b"", b"\0"))
    part = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    return part % (b"label", b"", label) + part % (b"images", b'; filename="%s"' % name, content) + b"--x--\r\n"


def _complete(route: str, kind: str, body: bytes) -> bytes:
    lines = [f"POST /api/{route} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", "Connection: close"]
    lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def _upload(route: str, image: bytes) -> bytes:
    part = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    body = part % (b"label", b"", b"red") + part % (b"images", b'; filename="a.png"', image) + b"--x--\r\n"
    return _complete(route, "multipart/form-data; boundary=x", body)


class Client:
    """Sends requests to a server and records faults."""

    def __init__(self, port: int, image: bytes):
        self.port, self.image, self.faults = port, image, list[str]()
        self.statuses: list[int] = []

    def send(self, text: bytes, *, pause: float = 0.0, limit: float = 3.0) -> bytes:
        """Send a request, in two parts if `pause` is positive, and return the response within `limit` seconds."""
        received = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=limit) as connection:
            half = len(text) // 2 if pause else len(text)
            connection.sendall(text[:half])
            if pause:
                time.sleep(pause)
                connection.sendall(text[half:])
            while part := connection.recv(65536):
                received += part
                connection.settimeout(0.5)  # further parts follow immediately
        status = int(received[9:12]) if received[9:12].isdigit() else 0
        self.statuses.append(status)
        if status in (500, 501, 502):
            self.faults.append(f"server error {status}: {text[:300]!r}")
        return received

    def staged(self) -> str:
        """Stages the image, and returns its id."""
        answer = self.send(_upload("staged", self.image), limit=60.0)
        if b" 201 " not in answer[:20]:
            self.faults.append(f"not staged: {answer[:300]!r}")
            return "0"
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])["staged"][0]["id"])

    def classify(self) -> None:
        """An ordinary request, which has to succeed soon; a full queue answers 503, and the client tries again."""
        for _ in range(20):
            answer = self.send(_upload("classify", self.image), limit=60.0)
            if b" 200 " in answer[:20] or b"has no classes" in answer:  # two changes may have removed both
                return
            time.sleep(1.0)
        self.faults.append(f"no prediction: {answer[:300]!r}")


class Requests(Kind):
    """A server that receives requests of all kinds in parallel."""

    name, cases = "requests", 30

    def __init__(self, scratch: Path):
        self.source = scratch / "model"
        self.source.mkdir(parents=True)
        make_model(self.source, "lucir-resnet")  # which separate processes know too
        self.image = (self.source / "queries" / "0.png").read_bytes()
        (self.source / "list.json").write_text('[{"image": "queries/0.png"}, {"image": "model/model.json"}]')
        self.ids = {"id": photo_of(self.source / "model")}
        self.changes = changes_of(self.source / "model")

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self.source, workdir)
        server = ChildProcess(_serve, "cscct serve", workdir)
        port = _port(server)
        if port is None:
            return CaseResult("", "no server", [*server.wait(0.1).faults(), "the server did not start"])
        client = Client(port, self.image)
        ids = {**self.ids, "staged": client.staged()}
        change = rng.choice(list(self.changes))
        change_process = start_command(*self.changes[change], folder=workdir)  # as somebody at the command line would
        generators = [random.Random(rng.random()) for _ in range(3)]
        works: list[Callable[[], None]] = [functools.partial(_malformed, client, one, ids) for one in generators]
        works += [client.classify, functools.partial(_slow, client, rng.choice((4, 40)))]
        works += [functools.partial(client.send, _EXPORT, limit=READY)] if rng.random() < 0.3 else []
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        client.classify()
        for thread in threads:
            thread.join()
        completed = change_process.wait()
        client.classify()
        last = (b"", b"GET / HTTP/1.1\r\n", _HALF, *((_EXPORT,) if rng.random() < 0.3 else ()))
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in last]
        for connection, text in zip(idle, last, strict=True):
            connection.sendall(text)
        os.kill(server.pid, signal.SIGTERM)
        end = server.wait(END)
        for connection in idle:
            connection.close()
        result = CaseResult(
            "answered", f"{change} beside {len(client.statuses)} requests: {sorted(set(client.statuses))}"
        )
        result.faults = client.faults + completed.faults() + outside.faults()
        if end.code not in (0, -signal.SIGTERM):
            result.faults.append(f"the exit code of the server is {end.code}: {end.stderr[-500:]}")
        result.faults += ["traceback in the log: " + end.stderr[-500:]] if "Traceback" in end.stderr else []
        result.faults += ["token in the log"] if TOKEN in end.stderr else []
        return result


_HALF = (
    f"POST /api/staged HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100000\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x"
).encode()


_EXPORT = _complete("export", "application/json", b'{"format": "pt2"}')


def _malformed(client: Client, rng: random.Random, ids: dict[str, str]) -> None:
    for _ in range(20):
        client.send(_request(rng, client.image, ids), pause=rng.choice((0.0,) * 9 + (0.2,)))


def _slow(client: Client, count: int) -> None:
    """Open uploads and send only their first part."""
    connections = []
    with suppress(OSError):
        for _ in range(count):
            connections.append(socket.create_connection(("127.0.0.1", client.port), timeout=30))
            connections[-1].sendall(_HALF)
        time.sleep(3)
    for connection in connections:
        connection.close()


def _serve() -> None:
    from cscct.classifier.serve import run

    run("model", port=0, token=TOKEN, queue="list.json")


def _port(server: ChildProcess) -> int | None:
    end = time.monotonic() + READY
    while time.monotonic() < end:
        arguments = [word for word in server.output().split() if word.startswith("http://")]
        if arguments:
            return urlsplit(arguments[0]).port
        time.sleep(0.05)
    return None
