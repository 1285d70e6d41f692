import { execFile } from "node:child_process";
import { access, chown, constants, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "pg";
import { freePort } from "../redis/redis-port.ts";
import { isRunning, startWatchedServer, stopWatchedServer } from "../servers/watched-server.ts";
import { waitUntil } from "../async/wait-until.ts";

const run = promisify(execFile);
const DEBIAN = "/usr/lib/postgresql";
const HOST = "127.0.0.1";
const PORT_ATTEMPTS = 5;
const INSTALLER = fileURLToPath(new URL("./install-postgres.sh", import.meta.url));
/** The users that can run a server for root, which PostgreSQL refuses. */
const USERS = ["postgres", "nobody"];

/** A database that tests, the examples and the benchmark may use until they stop it. */
export interface LocalPostgres {
  readonly url: string;
  /** How it was come by, for a log line. */
  readonly origin: string;
  /** Ends a server that was started for this call, or removes the database. */
  stop(): Promise<void>;
}

/** The folder with the programs of the newest PostgreSQL server, or nothing. */
export async function findPostgres(): Promise<string | undefined> {
  const versions = await readdir(DEBIAN).catch(() => []);
  const newest = versions.sort((one, other) => Number(other) - Number(one));
  const onPath = (process.env["PATH"] ?? "").split(delimiter).filter(Boolean);
  for (const folder of [...newest.map((version) => join(DEBIAN, version, "bin")), ...onPath]) {
    const isThere = await access(join(folder, "initdb"), constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return folder;
  }
  return undefined;
}

/** Installs the distribution's package; safe when two processes do so at once. */
export async function installPostgres(): Promise<string> {
  process.stderr.write("No PostgreSQL found; installing postgresql with apt-get.\n");
  await run("sh", [INSTALLER], { maxBuffer: 16 * 1024 * 1024 });
  const folder = await findPostgres();
  if (folder === undefined) throw new Error(`postgresql is installed, but not in ${DEBIAN}.`);
  return folder;
}

/** Starts a server with a new cluster in a temporary folder. It ends with this process. */
export async function startPrivatePostgres(programs: string): Promise<LocalPostgres> {
  const dir = await mkdtemp(join(tmpdir(), "sluice-postgres-"));
  const as = process.getuid?.() === 0 ? await giveAway(dir) : [];
  const data = join(dir, "data");
  const options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
  const [command = "", ...rest] = [...as, join(programs, "initdb"), "-D", data, ...options];
  await run(command, rest, { cwd: dir });
  for (let attempt = 1; ; attempt++) {
    try {
      return await startOn(await freePort(HOST), { programs, dir, data, as });
    } catch (error) {
      if (attempt < PORT_ATTEMPTS && /Address already in use/.test(String(error))) continue;
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
  }
}

/** Gives the folder to a user that may run a server. Returns the beginning of that user's commands. */
async function giveAway(dir: string): Promise<string[]> {
  for (const user of USERS) {
    const ids = await Promise.all(["-u", "-g"].map((flag) => run("id", [flag, user]))).catch(
      () => undefined,
    );
    if (ids === undefined) continue;
    const [uid, gid] = ids.map(({ stdout }) => Number(stdout));
    await chown(dir, uid!, gid!);
    return ["setpriv", `--reuid=${uid}`, `--regid=${gid}`, "--clear-groups"];
  }
  throw new Error(`PostgreSQL does not run as root, and there is no user ${USERS.join(" or ")}.`);
}

async function startOn(
  port: number,
  cluster: { programs: string; dir: string; data: string; as: readonly string[] },
): Promise<LocalPostgres> {
  const { programs, dir, data, as } = cluster;
  const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"];
  const logFile = join(dir, "postgres.log");
  const server = startWatchedServer({
    command: [
      ...as,
      join(programs, "postgres"),
      "-D",
      data,
      "-p",
      String(port),
      ...settings.flatMap((setting) => ["-c", setting]),
    ],
    logFile,
    dirToRemove: dir,
  });
  const url = `postgres://postgres@${HOST}:${port}/postgres`;
  await waitUntil(async () => {
    if (!isRunning(server)) throw new Error(await readFile(logFile, "utf8"));
    const client = new Client({ connectionString: url });
    client.on("error", () => undefined);
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    );
  }, "PostgreSQL accepts connections");
  return {
    url,
    origin: programs,
    async stop() {
      // Ends open connections, for which SIGTERM would wait.
      server.kill("SIGINT");
      await stopWatchedServer(server);
      await rm(dir, { recursive: true, force: true });
    },
  };
}
