"""Runs a suite of tests that another project ships, and prints a JSON line for each test:
its name, how it ended, and why where it was left out or failed."""

import json
import os
import sys
import unittest

PACKAGES = "/usr/lib/python3/dist-packages"
out = os.fdopen(os.dup(1), "w", buffering=1)


class Result(unittest.TestResult):
    """Tells how each test ended. A class that is left out as a whole counts once."""

    def tell(self, test, how, why=""):
        name = test.id() if hasattr(test, "id") else str(test)
        out.write(json.dumps({"test": name, "ended": how, "why": why[-6000:]}) + "\n")

    def addSuccess(self, test):
        self.tell(test, "passed")

    def addSkip(self, test, reason):
        self.tell(test, "skipped", str(reason))

    def addError(self, test, err):
        self.tell(test, "failed", self._exc_info_to_string(err, test) if err else "")

    addFailure = addError


def main():
    folder = os.path.join(PACKAGES, sys.argv[1])
    # Of several shares one takes every so many-th class; a class is set up once.
    share, shares = int(sys.argv[2]), int(sys.argv[3])
    chosen = sys.argv[4:]
    found = unittest.TestLoader().discover(folder, pattern="test_*.py", top_level_dir=PACKAGES)
    classes = {}

    def walk(suite):
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                walk(test)
            elif not chosen or any(word in test.id() for word in chosen):
                classes.setdefault(type(test), []).append(test)

    walk(found)
    mine = [tests for n, (_, tests) in enumerate(sorted(classes.items(), key=lambda c: (c[0].__module__, c[0].__name__))) if n % shares == share]
    unittest.TestSuite(unittest.TestSuite(tests) for tests in mine).run(Result())


main()
