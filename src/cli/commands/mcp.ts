/**
 * `mcp`: offers the operations as tools of the Model Context Protocol, over standard input and
 * output.
 */
import process from "node:process";
import { createInterface } from "node:readline";
import { Option, type Command } from "commander";
import { reasonOf } from "../../core/describe.ts";
import { createFacts } from "../../operations/facts.ts";
import type { Door } from "../../operations/operation.ts";
import { replyTo, unreadable, type McpDoor } from "../../server/operations/mcp.ts";
import { whoRuns, withSluice, type Io } from "../io.ts";
import { callerOf } from "../operations.ts";

export function addMcp(program: Command, io: Io): void {
  program
    .command("mcp")
    .description(
      "gives AI agents the same operations as tools (MCP), over standard input and output",
    )
    .addOption(new Option("--allow <what>", "act lets them make changes").choices(["act"]))
    .addHelpText(
      "after",
      `
Without --allow, tools only read, and show no data of jobs. The change log shows who ran this command.

Example: sluice mcp
Example: sluice mcp --allow act`,
    )
    .action(async ({ allow }: { readonly allow?: "act" }, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        const caller: Door["caller"] = {
          ...callerOf(io),
          by: (said) => `${said ?? whoRuns(io)} (mcp)`,
          mayUse: (needs) => needs === "view" || allow === "act",
        };
        const fail = (error: unknown): void => io.err(`${reasonOf(error)}\n`);
        const door = { sluice, facts: createFacts(sluice), caller, fail };
        const underway = new Set<Promise<void>>();
        // The loop ends when the client closes the connection.
        for await (const line of createInterface({ input: process.stdin })) {
          if (line.trim() === "") continue;
          const answering = answer(line, door, io).finally(() => underway.delete(answering));
          underway.add(answering);
        }
        await Promise.all(underway);
      });
    });
}

async function answer(line: string, door: McpDoor, io: Io): Promise<void> {
  const reply = await readAndReply(line, door);
  if (reply !== undefined) io.out(`${JSON.stringify(reply)}\n`);
}

async function readAndReply(line: string, door: McpDoor): Promise<object | undefined> {
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch {
    return unreadable();
  }
  return replyTo(message, door);
}
