"""Runs Debian's openstack client for each line of the input, a JSON list of arguments, in one process: the client takes two seconds to load.
It answers with a line of JSON each: status, what it said, what it complained of."""
import contextlib
import io
import json
import sys

from openstackclient import shell

answers = sys.stdout
for line in sys.stdin:
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        try:
            status = shell.main(json.loads(line))
        except SystemExit as end:
            status = end.code
    json.dump([status or 0, said.getvalue(), wrong.getvalue()], answers)
    answers.write("\n")
    answers.flush()
