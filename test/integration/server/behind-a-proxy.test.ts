import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import type { ServerOptions } from "sluice/server";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openBoards } from "../../support/server/boards.ts";
import { ACT, ask, openServers } from "../../support/server/open-server.ts";
import { reverseProxies } from "../../support/server/proxies.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();
const proxies = reverseProxies();

async function openServer(options: ServerOptions = {}) {
  const service = sluices.open();
  const bucket = service.bucket("stripe", { rate: "100/s" });
  const queue = service.queue("charges", { bucket });
  await bucket.draw();
  await queue.enqueue("data of a job");
  await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is told of");
  const { url } = await servers.open(sluices.open(), options);
  return { url, bucket };
}

/** Signs in, pauses a bucket by its button and looks at the jobs, as an operator does. */
async function useBoard(board: string, { bucket }: Awaited<ReturnType<typeof openServer>>) {
  const { page, requests, errors } = await boards.open(board);
  await page.getByLabel("Token").fill(ACT);
  await page.getByLabel("Token").press("Enter");
  await page.getByRole("link", { name: "stripe" }).click();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByLabel("Reason").fill("maintenance");
  await page.getByRole("button", { name: "Pause all calls" }).click();
  await waitUntil(async () => (await bucket.peek()).pausedForMs > 0, "the bucket is paused");
  await page.getByRole("link", { name: "Jobs" }).click();
  await page
    .getByRole("link", { name: /charges/ })
    .first()
    .click();
  await page.waitForURL(/\/jobs\/queue\/charges/);
  await page.reload();
  await page.getByText("Data", { exact: true }).click();
  await page.getByText("data of a job").first().waitFor();
  await page.locator("header button").last().click();
  await page.getByText("Sluice", { exact: true }).last().click();
  await page.getByRole("link", { name: "stripe" }).waitFor();
  const cookies = await page.context().cookies();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  return {
    paths: cookies.map(({ path }) => path),
    left: await page.context().cookies(),
    outside: requests.filter((asked) => !asked.startsWith(board)),
    // The board is told to sign in before it has a token.
    errors: errors.filter((each) => !each.includes("401")),
  };
}

const WELL = { left: [], outside: [], errors: [] };

describe("docs/guides/operate/behind-a-proxy.md", () => {
  async function blockOf(language: string): Promise<string> {
    const page = await readFile("docs/guides/operate/behind-a-proxy.md", "utf8");
    return new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, "m").exec(page)![1]!;
  }

  it("has a configuration of nginx with which the board and its jobs work below a path", async () => {
    const opened = await openServer();
    const block = await blockOf("nginx");
    const config = block
      .replace("listen 80;", "listen 127.0.0.1:{port};")
      .replace("http://127.0.0.1:3010", opened.url);
    const url = await proxies.nginx(config);

    const used = await useBoard(`${url}/ops/sluice/`, opened);

    expect(used).toEqual({ ...WELL, paths: ["/ops/sluice/"] });
  });

  it("has a configuration of Caddy with which the board and its jobs work below a path", async () => {
    const opened = await openServer();
    const block = await blockOf("caddyfile");
    const sites = block
      .replace(":80 {", "http://127.0.0.1:{port} {")
      .replace("127.0.0.1:3010", new URL(opened.url).host);
    const url = await proxies.caddy(sites);

    const used = await useBoard(`${url}/ops/sluice/`, opened);

    expect(used).toEqual({ ...WELL, paths: ["/ops/sluice/"] });
  });

  it("has an ingress with which the board and its jobs work below a path", async () => {
    const opened = await openServer();
    const ingress = parse(await blockOf("yaml")) as {
      metadata: { annotations: Record<string, string> };
      spec: { rules: { http: { paths: { path: string }[] } }[] };
    };
    const { path } = ingress.spec.rules[0]!.http.paths[0]!;
    const target = ingress.metadata.annotations["nginx.ingress.kubernetes.io/rewrite-target"];
    // What ingress-nginx makes of such an ingress.
    const url = await proxies.nginx(`server {
      listen 127.0.0.1:{port};
      location ~* "^${path}" {
        rewrite "(?i)${path}" ${target} break;
        proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-Host $http_host;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_redirect off;
        proxy_pass ${opened.url};
      }
    }`);

    const used = await useBoard(`${url}/ops/sluice/`, opened);

    expect(used).toEqual({ ...WELL, paths: ["/ops/sluice/"] });
  });
});

describe("a server that does not know its public address", () => {
  it.each([
    ["the default Host", ""],
    ["a Host without its port", "proxy_set_header Host $host;"],
    ["X-Forwarded-Host alone", "proxy_set_header X-Forwarded-Host $http_host;"],
  ])("takes what its own pages ask, behind nginx with %s", async (_what, header) => {
    const opened = await openServer();
    const url = await proxies.nginx(`server {
      listen 127.0.0.1:{port};
      location / { ${header} proxy_pass ${opened.url}; }
    }`);

    expect(await useBoard(`${url}/`, opened)).toEqual({ ...WELL, paths: ["/"] });
  });

  const ORIGIN = "http://ops.example.com";
  async function signIn(options: ServerOptions, headers: Record<string, string>) {
    const { url } = await openServer(options);
    const path = `${url}/api/v1/session`;
    return ask(path, { body: { token: ACT }, headers: { origin: ORIGIN, ...headers } });
  }

  it.each([
    ["an unknown Origin", {}, {}, 403],
    [
      "a forwarded Host that is not to be believed",
      {},
      { "x-forwarded-host": "ops.example.com" },
      403,
    ],
    ["publicUrl", { publicUrl: `${ORIGIN}/sluice` }, {}, 200],
    ["publicUrl with a usual port", { publicUrl: `${ORIGIN}:80` }, {}, 200],
    ["publicUrl of another host", { publicUrl: "http://other.example.com" }, {}, 403],
    ["trustProxy", { trustProxy: true }, { "x-forwarded-host": "ops.example.com" }, 200],
    [
      "trustProxy and a usual port",
      { trustProxy: "127.0.0.0/8" },
      { "x-forwarded-host": "ops.example.com:80" },
      200,
    ],
    [
      "trustProxy of another",
      { trustProxy: ["10.0.0.1"] },
      { "x-forwarded-host": "ops.example.com" },
      403,
    ],
    ["a page of the server", {}, { "sec-fetch-site": "same-origin" }, 200],
    ["a page of another site", { publicUrl: ORIGIN }, { "sec-fetch-site": "cross-site" }, 403],
    [
      "a page of another server of the site",
      { publicUrl: ORIGIN },
      { "sec-fetch-site": "same-site" },
      403,
    ],
  ] as const)("judges %s", async (_what, options, headers, status) => {
    const answer = await signIn(options, headers);

    expect(answer.status).toBe(status);
    expect(answer.json.code).toBe(status === 403 ? "ERR_CROSS_SITE" : undefined);
  });

  it("sets its cookie for the path and the scheme of its public address", async () => {
    const site = { "sec-fetch-site": "same-origin" };
    const https = { ...site, "x-forwarded-proto": "https" };
    const known = await signIn({ publicUrl: "https://ops.example.com/sluice" }, site);
    const trusted = await signIn({ trustProxy: true }, https);
    const plain = await signIn({}, https);

    expect(String(known.headers["set-cookie"])).toMatch(/Path=\/sluice\/;.*; Secure$/);
    expect(String(trusted.headers["set-cookie"])).toMatch(/Path=\/;.*; Secure$/);
    expect(String(plain.headers["set-cookie"])).not.toContain("Secure");
  });

  it.each(["/;Secure", "ops/", "/a b", "/x\r\nset-cookie: a=b"])(
    "sets no cookie for what is no path: %j",
    async (path) => {
      const { url } = await openServer();
      const query = new URLSearchParams({ path });

      const answer = await ask(`${url}/api/v1/session?${query}`, { body: { token: ACT } });

      expect(answer.status).toBe(400);
      expect(answer.headers).not.toHaveProperty("set-cookie");
    },
  );

  it.each([
    [{ publicUrl: "ops.example.com" }, /option "publicUrl".*give a URL/],
    [{ publicUrl: "https://ops.example.com/?a=1" }, /option "publicUrl".*give a URL/],
    [{ trustProxy: "everybody" }, /option "trustProxy".*give true, or/],
    [{ trustProxy: ["10.0.0.0/99"] }, /option "trustProxy.*give true, or/],
    [{ keepAliveTimeoutMs: -1 }, /option "keepAliveTimeoutMs" is -1/],
  ])("refuses %j", async (options, message) => {
    await expect(servers.open(sluices.open(), options)).rejects.toThrow(message);
  });

  it("keeps connections open for as long as configured", async () => {
    const { server } = await servers.open(sluices.open(), { keepAliveTimeoutMs: 620_000 });

    expect(server.app.server.keepAliveTimeout).toBe(620_000);
  });
});
