"""Records what a real OpenTSDB responds: `record.sh [FILE...]`, see there."""

import importlib
import sys
from pathlib import Path

from recorder import Rig

FILES = ("uid", "annotation", "tree", "search", "small")


def main(script, folder, target, *files):
    rig = Rig(script, folder, target)
    files = files or FILES
    cells = Path(target) / "cells.jsonl"
    kept = [line for line in cells.read_text().splitlines(True) if not any(f'"file": "{f}"' in line for f in files)] \
        if cells.exists() else []
    cells.write_text("".join(kept))
    for file in files:
        (Path(target) / f"{file}.jsonl").unlink(missing_ok=True)
        importlib.import_module(f"script_{file}").record(rig)


main(*sys.argv[1:])
