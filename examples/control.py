#!/usr/bin/env python3
"""Ask a running gateway: control.py SOCKET ASK [KEY=VALUE ...], as in

    control.py /run/polder/ap.sock show what=ports
    control.py /run/polder/ap.sock reload dry_run=true

A request is a line of JSON, and so is its answer.
"""

import json
import socket
import sys


class Gateway:
    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)
        self.lines = self.stream.makefile("r")

    def ask(self, ask, **arguments):
        request = {"polder": 1, "ask": ask, **arguments}
        self.stream.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        if "error" in answer:
            raise SystemExit(answer["error"]["message"])
        return next(value for key, value in answer.items() if key != "polder")


def value(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    pairs = (argument.split("=", 1) for argument in sys.argv[3:])
    arguments = {key: value(text) for key, text in pairs}
    print(json.dumps(Gateway(sys.argv[1]).ask(sys.argv[2], **arguments), indent=2))
