"""Asks a fork server for a process: `python -IS _client.py SOCKET SCRIPT ARGUMENT ...`, in place of a Ray worker.

Decision: it imports next to nothing, since every worker waits for it. Where no server answers it becomes the worker.
"""

import json
import os
import socket
import sys


def ask(address: str, argv: list[str]) -> bool:
    """Whether the server has forked a process that runs `argv`, with this one's streams, folder and environment."""
    with open("/proc/self/oom_score_adj") as score:
        wanted = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd(), "oom_score_adj": score.read()}
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            said = json.dumps(wanted).encode()
            sent = socket.send_fds(connection, [said], [0, 1, 2])
            connection.sendall(said[sent:])
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1) == b"+"
    except OSError:
        return False


def main() -> None:
    address, *argv = sys.argv[1:]
    if not ask(address, argv):
        os.execv(sys.executable, [sys.executable, *argv])


main()
