"""Runs the jobs of a queue, with nothing but Python: python3 worker.py [queue]

Start a server first: npx sluice serve --redis redis://127.0.0.1 --insecure-local
"""

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("SLUICE_URL", "http://127.0.0.1:3010")
TOKEN = os.environ.get("SLUICE_TOKEN", "none")
LOCK_MS = int(os.environ.get("LOCK_MS", "30000"))
FINAL = {400, 403, 404, 409, 413, 422}  # Repeating such a request changes nothing.
FAILURES = (OSError, ValueError, http.client.HTTPException)
stopping = threading.Event()


def handle(data):
    """Replace this with your work. It returns the result, or raises. An error's after_ms says when to retry."""
    print("job", data, flush=True)
    time.sleep(data.get("seconds", 0))
    return {"done": data}


def ask(queue, verb, body):
    headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
    url = f"{SERVER}/v1/queues/{queue}/{verb}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def insist(queue, verb, body):
    """Repeats a request until a server answers, because its job is done."""
    while True:
        try:
            return ask(queue, verb, body)
        except urllib.error.HTTPError as refused:
            print(verb, "was refused:", refused.read().decode(errors="replace"), file=sys.stderr)
            if refused.code in FINAL:  # The job was lost or cancelled, or the request is wrong.
                return
        except FAILURES as error:
            print(f"{verb} did not arrive: {error}", file=sys.stderr)
        time.sleep(1)


def extend(queue, receipt, ended):
    while not ended.wait(LOCK_MS / 3000):
        insist(queue, "extend", {"receipt": receipt, "lockMs": LOCK_MS})


def run(queue, job):
    receipt, ended = job["receipt"], threading.Event()
    threading.Thread(target=extend, args=(queue, receipt, ended), daemon=True).start()
    try:
        verb, outcome = "complete", {"result": handle(job["data"])}
    except Exception as error:
        verb, outcome = "fail", {"error": f"{type(error).__name__}: {error}"}
        if hasattr(error, "after_ms"):
            outcome["retryAfterMs"] = error.after_ms
    ended.set()
    insist(queue, verb, {"receipt": receipt, **outcome})


def work(queue):
    while not stopping.is_set():
        try:
            body = {"waitMs": 2000, "lockMs": LOCK_MS, "worker": f"python-{os.getpid()}"}
            for job in ask(queue, "take", body)["jobs"]:
                run(queue, job)
        except FAILURES as error:
            print("take failed:", error, file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    queue = sys.argv[1] if len(sys.argv) > 1 else "mail"
    threads = [threading.Thread(target=work, args=(queue,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
