import { expect, inject, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { ask } from "../../support/server/open-server.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();
const apis = fakeApis();

function serve(...args: string[]) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "serve", "--port", "0", ...args],
    env: { REDIS_URL: inject("redisUrl") },
    isBuilt: true,
  });
}

it("sluice serve --forward paces by a bucket that a service has declared, and keeps its token to itself", async () => {
  const api = await apis.start(() => ({ body: "theirs" }));
  await sluices.open().bucket("theirs", { rate: "1/h", burst: 3 }).draw();
  const server = serve("--token", "token-of-the-server", "--forward", `theirs=${api.url}`);
  await waitUntil(() => /^http\S+$/m.test(server.stdout), "it says its URL");
  const url = `${/^http\S+$/m.exec(server.stdout)![0]}/theirs/x`;
  const token = "token-of-the-server";
  const mine = { authorization: "Bearer of-theirs", "x-sluice-token": token };

  const answers = [
    await ask(url),
    await ask(url, { headers: mine }),
    await ask(url, { token }),
    await ask(url, { headers: { ...mine, "x-sluice-max-wait": "100" } }),
  ];

  expect(answers.map(({ status }) => status)).toEqual([401, 200, 200, 429]);
  expect(api.calls.map(({ headers }) => headers["authorization"])).toEqual([
    "Bearer of-theirs",
    undefined,
  ]);
  expect(JSON.stringify(api.calls)).not.toContain(token);
  await waitUntil(() => server.stdout.includes('"status":429'), "all is logged");
  expect(server.stdout + server.stderr).not.toMatch(/of-theirs|token-of-the-server/);
});

it.each([
  "theirs",
  "theirs=ftp://x",
  "theirs=https://user:pw@host",
  "a/b=https://x",
  "api=https://x",
])("sluice serve --forward %s is refused as wrong usage", async (forward) => {
  const server = serve("--insecure-local", "--forward", forward);

  expect(await server.ended).toBe(2);
  expect(server.stderr).not.toContain("user:pw");
});
