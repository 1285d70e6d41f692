import { randomUUID } from "node:crypto";
import { describe, expect, inject, it } from "vitest";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const scripts = scriptProcesses();

const BURST = 10;

describe.each(["examples/servers/express-middleware.ts", "examples/servers/fastify-plugin.ts"])(
  "%s",
  (file) => {
    async function start(): Promise<{ url: string; server: ScriptProcess }> {
      const server = scripts.start(file, {
        env: { REDIS_URL: inject("redisUrl"), PORT: "0" },
      });
      const urlOf = (): string | undefined => /http:\S+/.exec(server.stdout)?.[0];
      await waitUntil(() => urlOf() !== undefined, `${file} listens: ${server.stderr}`);
      return { url: urlOf()!, server };
    }

    function ask(url: string, apiKey: string): Promise<Response> {
      return fetch(url, { headers: { "x-api-key": apiKey } });
    }

    it("lets a burst pass, then answers 429 and says when to come again", async () => {
      const { url } = await start();
      const apiKey = randomUUID();

      const passed = [];
      for (let count = 0; count < BURST; count++) passed.push(await ask(url, apiKey));
      const refused = await ask(url, apiKey);

      expect(passed.map(({ status }) => status)).toEqual(Array(BURST).fill(200));
      expect(await passed[0]!.json()).toEqual({ hello: "world" });
      expect(passed[0]!.headers.get("ratelimit-policy")).toBe(
        '"60/min with a burst of 10";q=10;w=10',
      );
      expect(passed[0]!.headers.get("ratelimit")).toBe('"60/min with a burst of 10";r=9;t=1');
      expect(passed[0]!.headers.get("x-ratelimit-limit")).toBe("10");
      expect(passed[0]!.headers.get("x-ratelimit-remaining")).toBe("9");
      expect(passed[0]!.headers.get("retry-after")).toBe(null);
      expect(refused.status).toBe(429);
      expect(await refused.json()).toMatchObject({ error: "Too many requests" });
      expect(refused.headers.get("retry-after")).toBe("1");
      expect(refused.headers.get("x-ratelimit-remaining")).toBe("0");
      expect(refused.headers.get("ratelimit")).toMatch(/;r=0;t=1$/);
    });

    it("takes nothing for a request that it refuses: who goes on asking gets through", async () => {
      const { url } = await start();
      const apiKey = randomUUID();
      for (let count = 0; count < BURST; count++) await ask(url, apiKey);

      // Each of these would put the next slot off by a second if it were drawn for.
      const statuses: number[] = [];
      await waitUntil(async () => {
        statuses.push((await ask(url, apiKey)).status);
        return statuses.at(-1) === 200;
      }, "one passes again");

      expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(1);
    });

    it("counts each client for itself, by address if it has no key", async () => {
      const { url } = await start();
      const apiKey = randomUUID();
      for (let count = 0; count < BURST + 1; count++) await ask(url, apiKey);

      expect((await ask(url, apiKey)).status).toBe(429);
      expect((await ask(url, randomUUID())).status).toBe(200);
      expect((await fetch(url)).status).toBe(200);
    });

    it("counts a client over all processes", async () => {
      const [a, b] = await Promise.all([start(), start()]);
      const apiKey = randomUUID();

      const answers = await Promise.all(
        Array.from({ length: 2 * BURST }, (_, index) => ask((index % 2 === 0 ? a : b).url, apiKey)),
      );

      expect(answers.filter(({ status }) => status === 200).length).toBeLessThan(2 * BURST);
      expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(BURST);
    });

    it("ends by itself on SIGTERM", async () => {
      const { server } = await start();

      server.signal("SIGTERM");

      expect(await server.ended).toBe(0);
      expect(server.stderr).toBe("");
    });
  },
);
