"""Serving: the token, the port, the command."""

import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner
from worlds.small_world import make_corpus

import airrep
from airrep.cli import app as cli
from airrep.explorer import security


def test_tokens_are_made_by_chance_and_checked() -> None:
    made = {security.choose_token(None, "127.0.0.1") for _ in range(10)}
    assert len(made) == 10
    assert all(token is not None and len(token) >= 32 for token in made)
    assert security.choose_token("x" * 16, "0.0.0.0") == "x" * 16
    assert security.choose_token("none", "::1") is None
    for bad in ("short", "x" * 15, "ü" * 20, "with spaces and more", "\x1b" * 20):
        with pytest.raises(airrep.errors.ConfigError, match="--set token: "):
            security.choose_token(bad, "127.0.0.1")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "box"])
def test_nobody_is_let_in_from_elsewhere_without_a_token(host: str) -> None:
    with pytest.raises(airrep.errors.ConfigError, match="--set token=none: "):
        security.choose_token("none", host)


def test_a_port_in_use_is_one_line(index: airrep.Index) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(airrep.errors.ConfigError, match=f"--port {port}: .*in use"):
            security.listen("127.0.0.1", port)
        result = CliRunner().invoke(cli.app, ["serve", str(index.path), "--port", str(port)])
    assert isinstance(result.exception, airrep.errors.ConfigError)


def test_addresses_name_the_token() -> None:
    assert security.address_of("127.0.0.1", 80, "abc") == "http://127.0.0.1:80/?token=abc"
    assert security.address_of("::1", 80, None) == "http://[::1]:80/"


@pytest.mark.parametrize(
    ("package", "command", "extra"), [("fastapi", "serve", "explorer"), ("mcp", "mcp", "mcp")], ids=["serve", "mcp"]
)
def test_without_the_extra_the_command_names_it(index: airrep.Index, package: str, command: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None; sys.argv = ['airrep', '{command}', sys.argv[1]];"
        "from airrep.cli.app import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(index.path)], capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"pip install 'airrep[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def hang_up(port: int, reset: bool) -> None:
    """Ask several times over one connection, and break it off before the answers are read."""
    with socket.create_connection(("127.0.0.1", port)) as caller:
        for _ in range(6):
            caller.sendall(f"GET /api/v1/facets HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        time.sleep(0.002)  # the first answers are on their way
        if reset:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_browsers_that_hang_up_do_not_end_the_command(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(9), tmp_path / "index", "tfidf")
    command = [sys.executable, "-m", "airrep.cli.app", "serve", str(index.path), "--set", "token=none", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as served:
        try:
            assert served.stdout is not None
            address = next(line for line in served.stdout if "http://" in line).split("http://")[1].strip()
            for number in range(600):
                hang_up(int(address.split(":")[1].strip("/")), number % 2 == 0)
            assert b"<html" in urlopen(f"http://{address}").read()
            assert served.poll() is None
        finally:
            served.kill()
