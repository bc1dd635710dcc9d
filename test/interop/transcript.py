"""Gives the commands of a transcript to Debian's openstack or baremetal command, all in one
process, and prints the transcript as it came out.

A line "$ WORDS" is a command; what follows up to the next one is what it says. "~ WORDS" is
asked again and again until it says what stands there. {said} is what the command before said. UUIDs and times are told apart by
the order in which they come, and written with as many letters as they have."""

import contextlib
import io
import logging
import os
import re
import shlex
import sys
import time

PATIENCE = 30  # seconds

uuids = {}


def same(text):
    """Writes what differs from run to run in one way."""

    def number(found):
        n = uuids.setdefault(found.group().lower(), len(uuids) + 1)
        return "%08d-0000-4000-8000-000000000000" % n

    text = re.sub(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", number, text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?", lambda t: re.sub(r"\d", "0", t.group()), text)
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://salvor", text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines() if line.strip())


def run(main, words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    logging.root.handlers.clear()
    if code:
        out.write("exit %s\n" % code)
    return out.getvalue()


def main():
    kind, endpoint, path = sys.argv[1:]
    if kind == "openstack":
        from openstackclient.shell import main as shell
        prefix = ["--os-auth-type", "none", "--os-endpoint", endpoint, "baremetal"]
    else:
        from ironicclient.shell import main as shell
        prefix = ["--os-auth-type", "none", "--os-endpoint", endpoint]
    blocks = []  # of [mark, words, what it says]
    with open(path) as transcript:
        for line in transcript:
            if line[:2] in ("$ ", "~ ", "# "):
                blocks.append([line[0], line[2:].rstrip("\n"), ""])
            elif blocks:
                blocks[-1][2] += line
    last = ""
    write = os.environ.get("TRANSCRIPT_WRITE")
    for mark, words, expected in blocks:
        sys.stdout.write("%s %s\n" % (mark, words))
        if mark == "#":
            continue
        if mark == "~" and write:
            time.sleep(2)
        end = time.monotonic() + PATIENCE
        while True:
            known = dict(uuids)
            raw = run(shell, prefix + [w.replace("{said}", last) for w in shlex.split(words)])
            said = same(raw)
            if mark == "$" or write or said == expected or time.monotonic() > end:
                break
            uuids.clear()
            uuids.update(known)
            time.sleep(0.2)
        last = raw.strip()
        sys.stdout.write(said)
        sys.stdout.flush()


main()
