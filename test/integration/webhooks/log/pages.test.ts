import { describe, expect, it } from "vitest";
import type { Message, Webhooks } from "sluice/webhooks";
import { realSluices } from "../../../support/setup/real-sluice.ts";
import { openHooks } from "../../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const EVENT = { tenant: "acme", type: "note.made" };

/** The messages of all pages, page by page. */
async function pagesOf(hooks: Webhooks, limit: number): Promise<(readonly Message[])[]> {
  const pages: (readonly Message[])[] = [];
  let cursor: string | undefined;
  do {
    const page = await hooks.messages.list({ tenant: "acme", limit, cursor });
    pages.push(page.entries);
    cursor = page.cursor;
  } while (cursor !== undefined);
  return pages;
}

describe("the list of messages", () => {
  it("is read by pages, and by times", async () => {
    const hooks = openHooks(sluices);
    for (let at = 0; at < 25; at++) await hooks.send({ ...EVENT, id: `m-${at}`, data: at });

    const found = (await pagesOf(hooks, 10)).flat().map(({ id }) => id);

    expect(new Set(found).size).toBe(25);
    expect(found).toHaveLength(25);
    const fifth = await hooks.messages.get({ tenant: "acme", id: "m-5" });
    const { entries } = await hooks.messages.list({ tenant: "acme", until: fifth!.atMs });
    expect(entries.map(({ id }) => id)).toContain("m-5");
    expect(entries.map(({ id }) => id)).not.toContain("m-24");
    expect(
      (await hooks.messages.list({ tenant: "acme", since: new Date(Date.now() + 60_000) })).entries,
    ).toEqual([]);
  });

  it("ends a page where its messages are large, and the next one goes on there", async () => {
    const hooks = openHooks(sluices);
    const data = "x".repeat(250_000);
    for (let at = 0; at < 60; at++) await hooks.send({ ...EVENT, id: `m-${at}`, data });

    const pages = await pagesOf(hooks, 1_000);

    expect(pages.map((page) => page.length)).toEqual([40, 20]);
    expect(new Set(pages.flat().map(({ id }) => id)).size).toBe(60);
  });
});
