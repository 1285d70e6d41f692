import { randomUUID } from "node:crypto";
import { describe, expect, inject, it } from "vitest";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const scripts = scriptProcesses();

interface Shown {
  readonly queues: readonly {
    readonly name: string;
    readonly displayName?: string;
    readonly jobs: readonly { readonly name: string; readonly data: unknown }[];
  }[];
}

describe("examples/servers/bull-board.ts", () => {
  it("shows a queue of a sluice with its jobs, named by their keys, and ends on SIGTERM", async () => {
    const server = scripts.start("examples/servers/bull-board.ts", {
      env: { REDIS_URL: inject("redisUrl"), PORT: "0", SLUICE_PREFIX: `t${randomUUID()}` },
    });
    const urlOf = (): string | undefined => /http:\S+/.exec(server.stdout)?.[0];
    await waitUntil(() => urlOf() !== undefined || server.stderr !== "", "the board listens");

    const page = await fetch(urlOf()!);
    const asked = await fetch(`${urlOf()}/api/queues?activeQueue=${encodeURIComponent("{mails}")}`);
    const { queues } = (await asked.json()) as Shown;

    expect(page.status).toBe(200);
    expect(queues).toHaveLength(1);
    expect(queues[0]).toMatchObject({ name: "{mails}", displayName: "mails" });
    expect(queues[0]!.jobs).toMatchObject([{ name: "key acme", data: expect.anything() }]);
    server.signal("SIGTERM");
    expect(await server.ended).toBe(0);
    expect(server.stderr).toBe("");
  });
});
