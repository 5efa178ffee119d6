#!/usr/bin/env bash
# Unpack the packages that a GPU host lacks into .carry/site, to be put on PYTHONPATH there.
# usage: scripts/carry_site.sh [python version, default 3.12]
set -euo pipefail
cd "$(dirname "$0")/.."
version="${1:-3.12}"
wheels="$(mktemp -d)"
trap 'rm -rf "$wheels"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$version" \
    --dest "$wheels" --constraint constraints.txt pydantic filelock
rm -rf .carry/site
mkdir -p .carry/site
for wheel in "$wheels"/*.whl; do
    python3 -m zipfile -e "$wheel" .carry/site
done
du -sh .carry/site
