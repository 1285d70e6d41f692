import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import type { Socket } from "node:net";

export interface WatchedServerOptions {
  readonly command: readonly string[];
  readonly logFile: string;
  /** A folder that goes when the parent dies without having stopped the server. */
  readonly dirToRemove?: string | undefined;
}

const STOP_LIMIT_MS = 2_000;

const PIPE = 3;

/*
 * The shell becomes the server, so both have one process id; the watchdog stays
 * behind and reads a pipe that only the parent holds. A line says that the server
 * ended by itself. The end of the pipe says that the parent is dead, however it
 * died, so no signal or exit handler is needed. $0 is the folder to remove.
 * Not over stdin: Node closes that as soon as the server ends, before any line.
 */
const SERVER_WITH_WATCHDOG = `
(read -r line <&${PIPE} && exit; kill -9 $$; [ -z "$0" ] || rm -rf "$0") >/dev/null 2>&1 &
exec "$@" ${PIPE}<&-`;

/** Starts a server that cannot outlive this process, nor keep it alive. */
export function startWatchedServer(options: WatchedServerOptions): ChildProcess {
  const { command, logFile, dirToRemove = "" } = options;
  const log = openSync(logFile, "a");
  // Detached, so that Ctrl-C reaches the parent alone, which may still need the server to clean up.
  const server = spawn("sh", ["-c", SERVER_WITH_WATCHDOG, dirToRemove, ...command], {
    stdio: ["ignore", log, log, "pipe"],
    detached: true,
  });
  closeSync(log);

  const pipe = server.stdio[PIPE] as Socket;
  pipe.on("error", () => {}); // written to when the watchdog is gone as well
  server.on("error", () => {}); // isRunning() says so
  server.once("exit", () => pipe.end("ended\n"));
  pipe.unref();
  server.unref();
  return server;
}

/** Ends the server, by force when it does not go in time, and waits until it is gone. */
export async function stopWatchedServer(server: ChildProcess): Promise<void> {
  if (!isRunning(server)) return;
  const ended = once(server, "exit");
  server.ref();
  const force = setTimeout(() => server.kill("SIGKILL"), STOP_LIMIT_MS);
  server.kill("SIGTERM");
  server.kill("SIGCONT"); // a test may have frozen it
  await ended;
  clearTimeout(force);
}

export function isRunning(server: ChildProcess): boolean {
  return server.pid !== undefined && server.exitCode === null && server.signalCode === null;
}
