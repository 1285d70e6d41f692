import { describe, expect, it } from "vitest";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openBoards } from "../../support/server/boards.ts";
import { openServers } from "../../support/server/open-server.ts";

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();
const apis = fakeApis();

const PAUSE = `
  document.documentElement.dataset.ran = "yes";
  fetch("/api/v1/buckets/stripe/pause", {
    method: "POST", body: "{}", headers: { "content-type": "application/json" },
  });`;
const HTML = `<!doctype html><body>harmless<script>${PAUSE}</script></body>`;
const SVG = `<svg xmlns="http://www.w3.org/2000/svg"><text>harmless</text><script>${PAUSE}</script></svg>`;

describe("a third party's script does not run on the origin of the board", () => {
  it.each([
    ["unknown/unknown", HTML],
    ["application/unknown", HTML],
    ["*/*", HTML],
    ["text/html", HTML],
    ["application/x-unknown-content-type", HTML],
    ["text/plain; a=b, text/html", HTML],
    ["", HTML],
    ["image/svg+xml", SVG],
    ["application/vnd.acme+xml", SVG],
    ["audio/acme+xml", SVG],
  ])("in a page of type %j", async (type, body) => {
    const upstream = await apis.start(() => ({ headers: { "content-type": type }, body }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("stripe", { rate: "1000/s" });
    const forward = { up: { to: upstream.url, bucket: "stripe" } };
    const { url } = await servers.open(sluice, { insecureLocal: true, forward });
    const { page, requests } = await boards.open(url);

    // Types that the browser saves instead of showing end the navigation.
    await page.goto(`${url}/up/page`).catch(() => undefined);
    await page.waitForLoadState();

    expect(await page.evaluate("document.documentElement.dataset.ran")).toBeUndefined();
    expect(requests.filter((asked) => asked.includes("/pause"))).toEqual([]);
    expect((await bucket.peek()).pausedForMs).toBe(0);
  });
});
