import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { SERVER_ARGS, type LocalRedis, type PrivateRedisOptions } from "./private-redis.ts";

const run = promisify(execFile);
const IMAGE = "redis:8-alpine";
const PORT = 6379;
const PROBE_TIMEOUT_MS = 5_000;

/** Whether a container engine answers; its client alone, without an engine, is not enough. */
export async function hasContainerEngine(): Promise<boolean> {
  const probe = run("docker", ["version", "--format", "{{.Server.Version}}"], {
    timeout: PROBE_TIMEOUT_MS,
  });
  return probe.then(
    ({ stdout }) => stdout.trim() !== "",
    () => false,
  );
}

/** Starts a Redis in a container that is removed on stop, or by its reaper when this process dies. */
export async function startContainerRedis(options: PrivateRedisOptions): Promise<LocalRedis> {
  // Loaded here because it is heavy, and most machines never come this far.
  const { GenericContainer } = await import("testcontainers");
  const exposed = options.port === undefined ? PORT : { container: PORT, host: options.port };
  const container = await new GenericContainer(IMAGE)
    .withExposedPorts(exposed)
    .withCommand(["redis-server", ...SERVER_ARGS, ...(options.args ?? [])])
    .start();
  return {
    url: `redis://${container.getHost()}:${container.getMappedPort(PORT)}`,
    origin: `container ${IMAGE}`,
    stop: async () => {
      await container.stop();
    },
  };
}
