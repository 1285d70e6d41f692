/** `top`: shows all buckets repeatedly. */
import { setTimeout as pause } from "node:timers/promises";
import type { Command } from "commander";
import { allBuckets } from "../../operations/buckets/index.ts";
import { showBuckets } from "../../operations/text.ts";
import { globalsOf, print, withSluice, type Io } from "../io.ts";
import { textOf } from "../operations.ts";
import { countOf } from "../options.ts";

export function addTop(program: Command, io: Io): void {
  program
    .command("top")
    .description("all buckets, updated each second; those with the most pending calls first")
    .option("--every <ms>", "the time between updates, in ms", "1000")
    .option("--count <times>", "the number of updates; without it, until interrupted")
    .addHelpText("after", "\nExample: sluice top --every 2000")
    .action(async ({ every, count }: { every: string; count?: string }, command: Command) => {
      const everyMs = countOf("--every", every);
      const isTerminal = io.isTty && globalsOf(command, io).json !== true;
      const times = count === undefined ? Infinity : countOf("--count", count);
      await withSluice(command, io, async (sluice) => {
        for (let time = 0; time < times; time++) {
          if (time > 0) await pause(everyMs);
          const all = await allBuckets({ sluice });
          // Clears the terminal.
          if (isTerminal) io.out("\u001B[2J\u001B[H");
          const buckets = all.buckets.toSorted((a, b) => b.waiting.total - a.waiting.total);
          print(command, io, { ...all, buckets }, (shown) => textOf(showBuckets(shown)));
        }
      });
    });
}
