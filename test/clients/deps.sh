#!/usr/bin/env bash
# Installs what the tests run beside grpc-go: the C core of gRPC and tmux from Debian,
# grpc-js from npm, and MOSN, which is built. What is there is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! /usr/bin/python3 -c 'import grpc' 2>/dev/null || ! command -v tmux >/dev/null; then
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then as_root=(sudo); fi
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" apt-get install -q -y --no-install-recommends python3-grpcio tmux
fi
/usr/bin/python3 -c 'import grpc; print("python3-grpcio", grpc.__version__)'

tmux -V

# npm keeps a copy of the lock file that it last installed.
if [[ ! node_modules/.package-lock.json -nt package-lock.json ]]; then
  npm ci --ignore-scripts --no-audit --no-fund
fi
node -p '"grpc-js " + require("@grpc/grpc-js/package.json").version + ", with xds " + require("@grpc/grpc-js-xds/package.json").version'

cd ../mosn
go build -trimpath -ldflags='-s -w' -o bin/mosn .
echo "mosn $(go list -m -f '{{.Version}}' mosn.io/mosn)"
