import { Option, type Command } from "commander";
import { globalsOf, type Io } from "../../io.ts";
import { portOf, rethrowInUse, serve } from "../serve.ts";

interface DevOptions {
  readonly port: string;
  readonly redisPort: string;
  readonly webhooksPort: string;
  readonly webhooksSecret?: string;
  readonly rules?: string;
  readonly allow?: "act";
}

/** `dev`: everything that a service needs from Sluice while it is developed, in one process. */
export function addDev(program: Command, io: Io): void {
  program
    .command("dev")
    .description("serves the board, the HTTP API and a Redis in memory, for development")
    .option("--port <port>", "the port of the board and the API; 0 selects a free one", "3010")
    .option("--redis-port <port>", "the port of the Redis in memory; 0 selects a free one", "6379")
    .option(
      "--webhooks-port <port>",
      "the port of the receiver of webhooks; 0 selects a free one",
      "3011",
    )
    .option(
      "--webhooks-secret <secret>",
      "the secret that verifies webhooks; defaults to a new one at each start",
    )
    .option("--rules <file>", "a rules file to apply and watch")
    .addOption(
      new Option("--allow <what>", "act lets AI agents make changes over /mcp").choices(["act"]),
    )
    .addHelpText(
      "after",
      `
Set $REDIS_URL and $SLUICE_DEV_WEBHOOKS of your processes to the printed addresses. Endpoints with a URL of
the receiver and the printed secret then get their webhooks: each is verified and printed. The receiver
replies to /fail/503 with that status. All data is lost at the end. With --redis or
$REDIS_URL, that Redis is used instead. Only this machine can connect, and it needs no token.

Example: sluice dev
Example: sluice dev --rules sluice.yaml`,
    )
    .action(async (options: DevOptions, command: Command) => {
      const where = "sluice dev";
      const { redis } = globalsOf(command, io);
      const port = portOf("--port", options.port, where);
      const redisPort = portOf("--redis-port", options.redisPort, where);
      // Imported only here, because no other command needs these.
      const { createSecret, listen } = await import("../../../webhooks/index.ts");
      const { listenInMemory } = await import("../../../stores/memory/redis/server/listener.ts");
      const webhooksPort = portOf("--webhooks-port", options.webhooksPort, where);
      const secret = options.webhooksSecret ?? createSecret();
      const print = (line: string): void => io.out(`webhook    ${line}\n`);
      const receiver = await listen(webhooksPort, { secret, print }).catch(rethrowInUse);
      const listener =
        redis === undefined
          ? await listenInMemory(redisPort).catch(async (error: unknown) => {
              await receiver.close();
              rethrowInUse(error);
            })
          : undefined;
      const url = redis ?? listener!.url;
      try {
        await serve(
          command,
          { ...io, env: { ...io.env, REDIS_URL: url } },
          {
            server: { port, insecureLocal: true, mcpAllow: options.allow ?? "view", logger: false },
            llm: [],
            rules: options.rules,
            ready(at) {
              io.out(`board      ${at.url}\n`);
              io.out(
                `mcp        ${at.url}/mcp${options.allow === undefined ? ", read-only" : ""}\n`,
              );
              if (listener !== undefined) io.out(`REDIS_URL  ${listener.url}\n`);
              io.out(`webhooks   ${receiver.url}, secret ${secret}\n`);
            },
          },
        );
      } finally {
        await Promise.all([listener?.close(), receiver.close()]);
      }
    });
}
