/** `top`: all buckets, again and again. */
import { setTimeout as pause } from "node:timers/promises";
import type { Command } from "commander";
import { allBuckets, showBuckets } from "../../operations/buckets.ts";
import { globalsOf, print, withSluice, type Io } from "../io.ts";
import { textOf } from "../operations.ts";
import { countOf } from "../options.ts";

export function addTop(program: Command, io: Io): void {
  program
    .command("top")
    .description("all buckets, again each second; the busiest line first")
    .option("--every <ms>", "how often, in ms", "1000")
    .option("--count <times>", "how often at all; without it, until it is interrupted")
    .addHelpText("after", "\nExample: sluice top --every 2000")
    .action(async ({ every, count }: { every: string; count?: string }, command: Command) => {
      const everyMs = countOf("--every", every);
      const isTerminal = io.isTty && globalsOf(command, io).json !== true;
      const times = count === undefined ? Infinity : countOf("--count", count);
      await withSluice(command, io, async (sluice) => {
        for (let time = 0; time < times; time++) {
          if (time > 0) await pause(everyMs);
          const all = await allBuckets({ sluice });
          // Clears the terminal, and begins at its top.
          if (isTerminal) io.out("\u001B[2J\u001B[H");
          const buckets = all.buckets.toSorted((a, b) => b.waiting.total - a.waiting.total);
          print(command, io, { ...all, buckets }, (shown) => textOf(showBuckets(shown)));
        }
      });
    });
}
