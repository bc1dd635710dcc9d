# Runs openstack commands, one JSON list of words a line on standard input, in one process:
# loading the client costs more than most commands. Each answer is a line of JSON.
import contextlib
import io
import json
import sys

from openstackclient import shell

for line in sys.stdin:
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = shell.main(json.loads(line)) or 0
        except SystemExit as e:
            status = e.code or 0
    print(json.dumps({"status": int(status), "out": out.getvalue(), "err": err.getvalue()}), flush=True)
