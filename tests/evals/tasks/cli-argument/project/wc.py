"""Counts words, or lines, of files."""

import argparse
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="wc.py")
    parser.add_argument("file")
    parser.add_argument("--lines", help="count lines, not words")
    options = parser.parse_args(arguments)
    with open(options.file) as stream:
        text = stream.read()
    print(len(text.split()), options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
