import process from "node:process";
import { run } from "../../../src/cli/program.ts";

/** What a command printed, and its exit code. */
interface CliRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `sluice` in this process, because a process of its own takes a second to start. */
export async function runCli(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): Promise<CliRun> {
  let out = "";
  let err = "";
  const code = await run(args, {
    out: (text) => void (out += text),
    err: (text) => void (err += text),
    isTty: false,
    env: { ...process.env, ...env },
  });
  return { code, out, err };
}
