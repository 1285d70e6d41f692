import { randomUUID } from "node:crypto";
import process from "node:process";
import { Client } from "pg";
import { afterAll, beforeAll } from "vitest";
import { hasContainerEngine } from "../redis/container-redis.ts";
import { canInstallRedis } from "../redis/redis-server.ts";
import {
  findPostgres,
  installPostgres,
  startPrivatePostgres,
  type LocalPostgres,
} from "./postgres-server.ts";

const IMAGE = "postgres:17-alpine";
const PORT = 5432;
const HOW_TO_GET_POSTGRES =
  "No PostgreSQL to run on: set $DATABASE_URL, install postgresql, or start Docker.";

/**
 * Finds a PostgreSQL without asking anybody to prepare one: a new database on $DATABASE_URL, a server that is installed,
 * a container, and as root on Debian the distribution's package.
 */
export async function startPostgres(): Promise<LocalPostgres> {
  const existingUrl = process.env["DATABASE_URL"];
  if (existingUrl) return createDatabase(existingUrl);
  const programs = await findPostgres();
  if (programs !== undefined) return startPrivatePostgres(programs);
  if (await hasContainerEngine()) return startContainer();
  if (!(await canInstallRedis())) throw new Error(HOW_TO_GET_POSTGRES);
  return startPrivatePostgres(await installPostgres());
}

/** Gives a test file a database. */
export function postgresForFile(): { readonly url: string } {
  let postgres: LocalPostgres | undefined;
  beforeAll(async () => {
    postgres = await startPostgres();
  }, 600_000);
  afterAll(() => postgres?.stop());
  return {
    get url() {
      return postgres!.url;
    },
  };
}

async function createDatabase(server: string): Promise<LocalPostgres> {
  const name = `sluice_${randomUUID().replaceAll("-", "")}`;
  const run = async (sql: string): Promise<void> => {
    const client = new Client({ connectionString: server });
    await client.connect();
    await client.query(sql).finally(() => client.end());
  };
  await run(`CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    origin: "$DATABASE_URL",
    stop: () => run(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`),
  };
}

async function startContainer(): Promise<LocalPostgres> {
  // Loaded here because it is heavy, and most machines never come this far.
  const { GenericContainer, Wait } = await import("testcontainers");
  const container = await new GenericContainer(IMAGE)
    .withExposedPorts(PORT)
    .withEnvironment({ POSTGRES_HOST_AUTH_METHOD: "trust" })
    .withWaitStrategy(Wait.forLogMessage("database system is ready to accept connections", 2))
    .start();
  return {
    url: `postgres://postgres@${container.getHost()}:${container.getMappedPort(PORT)}/postgres`,
    origin: `container ${IMAGE}`,
    stop: async () => {
      await container.stop();
    },
  };
}
