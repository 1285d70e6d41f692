import { readFile } from "node:fs/promises";
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import { reasonOf } from "../../core/describe.ts";
import type { ServerOptions, TokenOptions } from "../../server/options.ts";
import { whyNotReady } from "../../server/health/health.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import {
  inOwnWords,
  onOneLine,
  parseDuration,
  serveUnread,
  untilInterrupted,
  withSluice,
  type Io,
} from "../io.ts";
import { readForwardFlags, type ForwardFlags } from "../forwards.ts";
import { readLlmBuckets } from "../llm-buckets.ts";

interface ServeOptions extends ForwardFlags {
  readonly port: string;
  readonly host: string;
  readonly socket?: string;
  readonly token?: readonly string[];
  readonly tokenFile?: string;
  readonly insecureLocal?: boolean;
  readonly tlsKey?: string;
  readonly tlsCert?: string;
  readonly llm?: readonly string[];
  readonly grpc?: string;
  readonly rules?: string;
  readonly publicUrl?: string;
  readonly trustProxy?: readonly string[] | true;
  readonly keepAliveTimeout?: string;
}

const EXAMPLES = `
Example: sluice serve --insecure-local
Example: sluice serve --insecure-local --forward gpt=https://api.openai.com --llm gpt=openai,requests=500/min,tokens=200000/min`;

export function addServe(program: Command, io: Io): void {
  program
    .command("serve")
    .description("serves the board and the HTTP API, until interrupted")
    .option("--port <port>", "the port; 0 selects a free one", "3010")
    .option("--host <address>", "the address to listen on", "127.0.0.1")
    .option("--socket <path>", "a Unix socket to listen on instead")
    .option("--token <tokens...>", "tokens that may do everything; defaults to $SLUICE_TOKEN")
    .option("--token-file <path>", "a file with one token, or with a JSON list of tokens and roles")
    .option("--insecure-local", "needs no token; on loopback only")
    .option("--tls-key <path>", "the private key for TLS, as PEM")
    .option("--tls-cert <path>", "the certificate for TLS, as PEM")
    .option(
      "--forward <name=url...>",
      "proxies that hold each request until a slot of the bucket of that name",
    )
    .option(
      "--forward-member <forward.member=url...>",
      "where requests of a pool's member go, as gpt.east=https://east.example.com,api-key=EAST_KEY; the headers are read from these environment variables",
    )
    .option(
      "--grpc <port>",
      "answers Envoy's ShouldRateLimit over gRPC on this port, where @grpc/grpc-js is installed",
    )
    .option(
      "--llm <bucket=api...>",
      "the LLM API behind the bucket of a --forward, so that requests cost their tokens: openai, azure, anthropic, gemini or bedrock, with the limits of the account",
    )
    .option(
      "--forward-timeout <time>",
      "how long the upstream of a --forward may be silent, such as 20m; defaults to 10m",
    )
    .option("--public-url <url>", "the address in browsers, if a proxy has another one")
    .option(
      "--trust-proxy [addresses...]",
      "believes X-Forwarded-For, -Host and -Proto of these proxies; of all without addresses",
    )
    .option(
      "--keep-alive-timeout <time>",
      "how long a connection stays open between requests; defaults to 72s",
    )
    .option("--rules <file>", "a rules file to apply and watch")
    .addHelpText("after", EXAMPLES)
    .action(async (options: ServeOptions, command: Command) => {
      const read = await readOptions(options, io);
      await serve(command, io, {
        server: read,
        llm: options.llm ?? [],
        rules: options.rules,
        ready: ({ url, grpc }) =>
          io.out(grpc === undefined ? `${url}\n` : `${url}\ngrpc ${grpc}\n`),
      });
    });
}

/** Serves the board and the HTTP API until interrupted. */
export async function serve(
  command: Command,
  io: Io,
  given: {
    readonly server: ServerOptions;
    readonly llm: readonly string[];
    readonly rules: string | undefined;
    /** Called once the server listens. */
    readonly ready: (at: { readonly url: string; readonly grpc?: string | undefined }) => void;
  },
): Promise<void> {
  const { server: options, llm, rules: file, ready } = given;
  await withSluice(
    command,
    io,
    async (sluice) => {
      // Hold the rules back until the server listens. A server that cannot listen must not
      // change anything.
      const { rules } = partsOf("sluice serve", sluice);
      rules?.hold();
      const declareBuckets = await readLlmBuckets(llm, options.forward ?? {});
      // Import the server only here, because it loads fastify, which no other command needs.
      const { createServer } = await import("../../server/server.ts");
      const server = await createServer(sluice, options);
      const interrupted = untilInterrupted();
      let isEnding = false;
      try {
        serveUnread();
        const at = await server.listen().catch(rethrowInUse);
        declareBuckets(sluice);
        rules?.release();
        ready(at);
        void warnIfUnreachable(sluice, io, () => isEnding);
        await interrupted;
      } finally {
        isEnding = true;
        await server.close();
      }
    },
    file === undefined ? {} : { rules: file },
  );
}

/** Warns the operator if Redis is unreachable. The server listens anyway. */
async function warnIfUnreachable(sluice: Sluice, io: Io, isEnding: () => boolean): Promise<void> {
  const reasons = await whyNotReady(sluice);
  if (isEnding()) return;
  for (const { reason } of reasons) {
    io.err(`${onOneLine(inOwnWords(`The server answers 503 until Redis answers: ${reason}`))}\n`);
  }
}

export function rethrowInUse(error: unknown): never {
  if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
  const remedy =
    "End what listens there, or give another --port, --redis-port, --webhooks-port, --socket or --grpc.";
  throw new Error(`${(error as Error).message}. ${remedy}`, { cause: error });
}

async function readOptions(options: ServeOptions, io: Io): Promise<ServerOptions> {
  const { port, host, socket, insecureLocal, tlsKey, tlsCert } = options;
  const tokens = await tokensOf(options, io);
  if ((tlsKey === undefined) !== (tlsCert === undefined)) {
    const option = tlsKey === undefined ? "--tls-key" : "--tls-cert";
    throw wrong(option, undefined, "give both --tls-key and --tls-cert, or none");
  }
  if (tokens.length === 0 && insecureLocal !== true) {
    throw wrong(
      "--token",
      undefined,
      "give --token or --token-file, set $SLUICE_TOKEN, or give --insecure-local to serve this machine alone without one",
    );
  }
  return {
    port: portOf("--port", port),
    host,
    ...(socket === undefined ? {} : { socket }),
    tokens,
    insecureLocal: insecureLocal === true,
    ...(options.grpc === undefined ? {} : { grpc: { port: portOf("--grpc", options.grpc) } }),
    forward: readForwardFlags(options, io.env),
    publicUrl: options.publicUrl,
    trustProxy: options.trustProxy,
    keepAliveTimeoutMs: timeOf("--keep-alive-timeout", options.keepAliveTimeout),
    ...(tlsKey === undefined
      ? {}
      : {
          tls: {
            key: await textOf("--tls-key", tlsKey),
            cert: await textOf("--tls-cert", tlsCert!),
          },
        }),
  };
}

function timeOf(option: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : parseDuration(option, text);
}

/** @throws {@link InvalidOptionError} when the text is no port. */
export function portOf(option: string, text: string, where?: string): number {
  if (/^\d{1,5}$/.test(text) && Number(text) < 65_536) return Number(text);
  throw wrong(option, text, "give a whole number from 0 to 65535", where);
}

async function tokensOf(options: ServeOptions, io: Io): Promise<readonly TokenOptions[]> {
  const { token = [], tokenFile, insecureLocal } = options;
  const fromFile = tokenFile === undefined ? [] : await tokensIn(tokenFile);
  const given = [...fromFile, ...token.map(acting)];
  const { SLUICE_TOKEN: fromEnv = "" } = io.env;
  return given.length === 0 && insecureLocal !== true && fromEnv !== "" ? [acting(fromEnv)] : given;
}

function acting(token: string): TokenOptions {
  return { token, role: "act" };
}

async function tokensIn(path: string): Promise<readonly TokenOptions[]> {
  const text = (await textOf("--token-file", path)).trim();
  if (!text.startsWith("[")) return [acting(text)];
  try {
    return JSON.parse(text) as readonly TokenOptions[];
  } catch (error) {
    throw wrong("--token-file", path, `it is not a JSON list: ${(error as Error).name}`);
  }
}

async function textOf(option: string, path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw wrong(option, path, `the file cannot be read: ${reasonOf(error)}`);
  }
}

function wrong(
  option: string,
  value: unknown,
  remedy: string,
  where = "sluice serve",
): InvalidOptionError {
  return new InvalidOptionError({ where, option, value, remedy });
}
