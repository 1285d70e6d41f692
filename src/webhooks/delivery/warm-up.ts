import { createServer } from "node:http";
import type { Socket } from "node:net";
import { duplexPair, type Duplex } from "node:stream";
import { Agent, type Dispatcher } from "undici";
import { createSecret, readSecret } from "../signing/secrets.ts";
import { signWith } from "../signing/sign.ts";
import { deliver } from "./deliver.ts";

const CALLS = 20;
/**
 * The body is as long as a large webhook, because the official library hashes in JavaScript: 10 kB
 * take 10 ms at first, and 0.1 ms later.
 */
const BODY = JSON.stringify({ type: "webhook.warm-up", data: "-".repeat(10_000) });

let warming: Promise<void> | undefined;

/**
 * Signs and sends a few requests within this process, once. The first webhook of a process would
 * otherwise be late, because code that runs for the first time takes some 50 ms longer.
 */
export function warmUp(): Promise<void> {
  return (warming ??= sendSome());
}

async function sendSome(): Promise<void> {
  const dispatcher = createLoop();
  const keys = [readSecret("secret", "secret", createSecret(), "standard")];
  for (let call = 0; call < CALLS; call++) {
    const about = { id: `warm-up-${call}`, at: new Date(), body: BODY, keys };
    const headers = signWith({
      ...about,
      style: "standard",
      headerPrefix: undefined,
      type: undefined,
    });
    const delivery = { url: "http://warm-up/", headers, body: Buffer.from(BODY), timeoutMs: 1_000 };
    await deliver(dispatcher, delivery, new AbortController().signal);
  }
  await dispatcher.destroy();
}

/** Connects to a server in this process that listens on no port. */
function createLoop(): Dispatcher {
  const server = createServer((request, response) => {
    request.resume();
    response.end("{}");
  });
  return new Agent({
    connect(_target, callback) {
      const [ours, theirs] = duplexPair().map(asSocket) as [Socket, Socket];
      server.emit("connection", theirs);
      // Wait, because the client is not ready for the socket yet.
      setImmediate(() => callback(null, ours));
    },
  });
}

/** Adds the other socket methods that undici calls. */
function asSocket(stream: Duplex): Socket {
  const quiet = (): Duplex => stream;
  const more = { ref: quiet, unref: quiet, setTimeout: quiet, setKeepAlive: quiet };
  return Object.assign(stream, more) as unknown as Socket;
}
