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
  return serveIn({}, ...args);
}

function serveIn(env: Readonly<Record<string, string>>, ...args: string[]) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "serve", "--port", "0", ...args],
    env: { REDIS_URL: inject("redisUrl"), ...env },
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

it("sluice serve --forward-member sends requests to the members of a pool, with their headers", async () => {
  const [east, west] = [await apis.start(() => ({})), await apis.start(() => ({}))];
  await sluices
    .open()
    .pool("gpt.x", { members: { east: { rate: "9/s" }, west: { rate: "9/s" } } })
    .draw();
  const members = [
    `gpt.x.east=${east.url}/e,api-key=EAST_KEY`,
    `gpt.x.west=${west.url},api-key=WEST_KEY,x-of=WEST`,
  ];
  const keys = { EAST_KEY: "key-of-east", WEST_KEY: "key-of-west", WEST: "w" };
  const args = ["--forward", "gpt.x=http://127.0.0.1:9", "--forward-member", ...members];
  const server = serveIn(keys, "--insecure-local", ...args);
  await waitUntil(() => /^http\S+$/m.test(server.stdout), "it says its URL");
  const url = `${/^http\S+$/m.exec(server.stdout)![0]}/gpt.x/v1`;

  const answers = [await ask(url), await ask(url)];

  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  const seen = [...east.calls, ...west.calls].map(({ path, headers }) => [
    path,
    headers["api-key"],
  ]);
  expect(seen).toEqual([
    ["/e/v1", "key-of-east"],
    ["/v1", "key-of-west"],
  ]);
  expect(west.calls[0]!.headers["x-of"]).toBe("w");
  expect(server.stdout + server.stderr).not.toMatch(/key-of/);
});

it.each([
  ["gpt=https://x", "begin with the name of a --forward; there are gpt"],
  ["gpt.east", "give the forward, the member and its URL"],
  ["gpt.east=https://x,api-key=NO_SUCH", "set the environment variable NO_SUCH"],
  ["gpt.east=ftp://x", "members"],
])("sluice serve --forward-member %s is refused as wrong usage", async (member, remedy) => {
  const server = serve(
    "--insecure-local",
    "--forward",
    "gpt=https://x",
    "--forward-member",
    member,
  );

  expect(await server.ended).toBe(2);
  expect(server.stderr).toContain(remedy);
});

it("sluice serve refuses --llm for a forward with members, whose limits it cannot set", async () => {
  const forward = ["--forward", "gpt=https://x", "--forward-member", "gpt.east=https://x"];
  const server = serve("--insecure-local", ...forward, "--llm", "gpt=openai,requests=500/min");

  expect(await server.ended).toBe(2);
  expect(server.stderr).toContain("the members of a pool need their own limits");
});
