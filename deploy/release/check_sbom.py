"""Checks an SBOM of a program: CycloneDX's schema, and its crates against Cargo.lock.

Standard input is `cargo tree --edges normal` of the program, without prefixes. cargo-cyclonedx does not resolve features as
finely as cargo does, so an SBOM may have a few crates more; none may be missing, or be for tests only.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

LOCKED = re.compile(r'^name = "(.+)"\nversion = "(.+)"(?:\nsource = ".+")?(?:\nchecksum = "(.+)")?$', re.MULTILINE)


def main(path):
    text = Path(path).read_text()
    if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
        sys.exit(f"{path}: not CycloneDX 1.5: {error}")
    bom = json.loads(text)
    program = bom["metadata"]["component"]
    found = {(c["name"], c["version"]): c for c in [program, *bom["components"]]}

    # `NAME vVERSION`, then perhaps `(…)`.
    built = {(name, version[1:]) for name, version, *_ in map(str.split, filter(str.strip, sys.stdin))}
    lock = {(name, version): checksum for name, version, checksum in LOCKED.findall(Path("Cargo.lock").read_text())}
    metadata = subprocess.check_output(["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"])
    dependencies = [d for package in json.loads(metadata)["packages"] for d in package["dependencies"]]
    for_tests = {d["name"] for d in dependencies if d["kind"] == "dev"} - {name for name, _ in built}

    # An empty list would agree with anything.
    if not {"tonic", "rustls", program["name"]} <= {name for name, _ in built} or "proptest" not in for_tests:
        sys.exit(f"{path}: `cargo tree` or `cargo metadata` did not list the program's crates")

    wrong = [f"{name} {version} is missing" for name, version in sorted(built - found.keys())]
    for (name, version), component in sorted(found.items()):
        sums = [h["content"] for h in component.get("hashes", []) if h["alg"] == "SHA-256"]
        if (name, version) not in lock:
            wrong.append(f"{name} {version} is not in Cargo.lock")
        elif sums != [s for s in [lock[name, version]] if s]:
            wrong.append(f"{name} {version} has another checksum than in Cargo.lock")
        if name in for_tests:
            wrong.append(f"{name} {version} is for tests only")
    if wrong:
        sys.exit(f"{path}:\n  " + "\n  ".join(wrong))
    print(f"{path}: {len(found)} components, {bom['metadata']['timestamp']}")


main(sys.argv[1])
