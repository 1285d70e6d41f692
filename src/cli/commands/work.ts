import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";
import { serveUnread, untilInterrupted, withSluice, type Io } from "../io.ts";

type Start = (sluice: Sluice) => unknown;

export function addWorker(program: Command, io: Io): void {
  program
    .command("worker <module>")
    .description("runs the workers that a module starts, until interrupted")
    .addHelpText(
      "after",
      `
The module's default export is a function that gets a sluice, and declares buckets, queues and workers on it.
On SIGINT or SIGTERM the workers finish their jobs, as with sluice.close(). They keep running when the output is closed.

Example: sluice worker ./charge-worker.js`,
    )
    .action(async (path: string, _options: object, command: Command) => {
      serveUnread();
      const start = await startOf(path);
      await withSluice(command, io, async (sluice) => {
        const interrupted = untilInterrupted();
        await start(sluice);
        if (!partsOf("sluice worker", sluice).hasWorkers()) {
          throw wrongModule(
            path,
            "it started no worker: call sluice.worker(queue, handler) on the sluice that its default export gets",
          );
        }
        io.err("Working; stop it with SIGINT or SIGTERM.\n");
        await interrupted;
      });
    });
}

async function startOf(path: string): Promise<Start> {
  const url = pathToFileURL(resolve(path)).href;
  const loaded = (await import(url).catch((cause: unknown) => {
    throw wrongModule(path, "it could not be loaded: give a JavaScript file", cause);
  })) as { readonly default?: unknown };
  if (typeof loaded.default === "function") return loaded.default as Start;
  throw wrongModule(path, "its default export must be a function that gets a sluice");
}

function wrongModule(path: string, remedy: string, cause?: unknown): InvalidOptionError {
  return new InvalidOptionError({
    where: "sluice worker",
    option: "module",
    value: path,
    remedy,
    cause,
  });
}
