import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";

const compose = await readFile("docker-compose.yml", "utf8");
const runWorker = await readFile("workers/shared/run-worker.ts", "utf8");

/** What a pattern captures in a text. */
function only(text: string, pattern: RegExp): string {
  return pattern.exec(text)![1]!;
}

/** One service of the file. */
function serviceOf(name: string): string {
  return only(compose, new RegExp(`^  ${name}:\\n((?:(?: {4}.*)?\\n)+)`, "m"));
}

describe("docker-compose.yml", () => {
  it("publishes the workers' Redis where its comment says", () => {
    const port = only(compose, /^# is redis:\/\/127\.0\.0\.1:(\d+)/m);

    expect(serviceOf("redis")).toContain(`ports: ["127.0.0.1:${port}:6379"]`);
  });

  it("publishes no two servers on one port", () => {
    const ports = [...compose.matchAll(/127\.0\.0\.1:(\d+):6379/g)].map(([, port]) => port);

    expect(ports.length).toBeGreaterThan(3);
    expect(new Set(ports).size).toBe(ports.length);
  });

  it("lets a worker close before it is killed", () => {
    const graceS = Number(only(compose, /stop_grace_period: (\d+)s/));
    const deadlineMs = Number(only(compose, /SLUICE_CLOSE_DEADLINE_MS: "(\d+)"/));
    const afterMs = Number(only(runWorker, /CLOSE_GRACE_MS = ([\d_]+)/).replaceAll("_", ""));

    expect(graceS * 1_000).toBeGreaterThan(deadlineMs + afterMs);
  });

  it("copies what .dockerignore lets through, and that is all it lets through", async () => {
    const ignore = (await readFile(".dockerignore", "utf8")).split("\n");
    const copied = [...compose.matchAll(/^ +COPY (.+) \.\/?\S*$/gm)].flatMap(([, names]) =>
      names!.split(" "),
    );
    const kept = ignore.filter((line) => line.startsWith("!")).map((line) => line.slice(1));

    expect(ignore).toContain("*");
    expect(kept.toSorted()).toEqual(copied.toSorted());
  });
});
