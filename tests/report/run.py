# SPDX-License-Identifier: Apache-2.0
"""Tests of the report page in a real browser; all *_test.py of this folder.

    run.py REPORT_TOOL [unittest's arguments]

Exits with 77, which CTest shows as skipped, where the browser or its driver is missing.
"""
import pathlib
import shutil
import sys
import unittest

HERE = pathlib.Path(__file__).parent


def missing():
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return f"{sys.executable} has no selenium"
    return None


def main():
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    import browser
    browser.REPORT_TOOL = sys.argv.pop(1)
    names = [path.stem for path in sorted(HERE.glob("*_test.py"))]
    try:
        program = unittest.main(module=None, exit=False, argv=sys.argv if len(sys.argv) > 1 else [sys.argv[0], *names])
    finally:
        browser.stop()
    return 0 if program.result.wasSuccessful() and program.result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
