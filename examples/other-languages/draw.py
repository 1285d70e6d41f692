"""Makes calls in their slots, with nothing but Python: python3 draw.py [bucket]

Start a server first: npx sluice serve --redis redis://127.0.0.1 --insecure-local
"""

import json
import os
import sys
import urllib.error
import urllib.request

SERVER = os.environ.get("SLUICE_URL", "http://127.0.0.1:3010")
TOKEN = os.environ.get("SLUICE_TOKEN")


def ask(path, body):
    headers = {"content-type": "application/json"}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def in_slot(bucket, call, **options):
    """Waits for a slot, makes the call, and gives back what it held."""
    slot = ask(f"/v1/buckets/{bucket}/draw", options)["slot"]
    try:
        return call()
    finally:
        if "id" in slot:
            ask(f"/v1/slots/{slot['id']}/release", {})


if __name__ == "__main__":
    bucket = sys.argv[1] if len(sys.argv) > 1 else "api"
    try:
        for number in range(3):
            in_slot(bucket, lambda: print("call", number), key="acme", maxWaitMs=10_000)
    except urllib.error.HTTPError as refused:
        wait = refused.headers["retry-after"]
        again = f"; try again in {wait} s" if wait else ""
        sys.exit(json.load(refused)["detail"] + again)
