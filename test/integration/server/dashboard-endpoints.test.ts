import process from "node:process";
import { describe, expect, it } from "vitest";
import { listWebhooks } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";
import { flawsOf, openBoards } from "../../support/server/boards.ts";
import { openServers } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, startReceiver } from "../../support/webhooks/open-hooks.ts";

const HOSTILE = `<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>`;
const REF = { tenant: "acme", id: "billing" };

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();

/** A sender with an endpoint whose breaker is open and one that is well, and a server beside it. */
async function openEndpointBoard() {
  const hooks = openHooks(sluices, { breaker: { failures: 2, coolMs: 300_000 } });
  const broken = await startReceiver({ answer: () => ({ status: 500, body: HOSTILE }) });
  const well = await startReceiver();
  await hooks.endpoints.put({
    ...REF,
    url: `${broken.url}/in?token=very-secret`,
    description: HOSTILE,
    rate: "50/s",
    scheduleMs: [0, 1, 1],
  });
  await hooks.endpoints.put({ tenant: "globex", id: "crm", url: well.url });
  hooks.worker({ concurrency: 7 });
  await hooks.send({ tenant: "acme", type: "a", data: 1 });
  await hooks.send({ tenant: "globex", type: "a", data: 1 });
  const isAlone = async (): Promise<boolean> => (await hooks.status(REF))?.state === "left alone";
  await waitUntil(isAlone, "its breaker is open");
  const sluice = sluices.open();
  const isReported = async (): Promise<boolean> =>
    (await listWebhooks(sluice)).length === 1 && (await sluice.overview()).workers.length === 1;
  await waitUntil(isReported, "the sender and its worker are reported");
  const { url } = await servers.open(sluice, { insecureLocal: true });
  return { url, hooks };
}

describe("the board of endpoints", () => {
  it("says which endpoint fails and why, and hides responses until a user asks for them", async () => {
    const { url } = await openEndpointBoard();
    const { page, requests, errors } = await boards.open(`${url}/#/endpoints`);
    const row = page.locator("tr", { hasText: "acme / billing" });

    await row.getByText("backing off").waitFor();
    await row.getByText("server-error 500").waitFor();
    await page.locator("tr", { hasText: "globex / crm" }).getByText("healthy").waitFor();
    await page.getByRole("link", { name: "acme / billing" }).click();
    await page.getByRole("heading", { name: "acme / billing" }).waitFor();
    await page.getByText(HOSTILE).waitFor();
    expect(await page.locator("pre").count()).toBe(0);
    await page.getByRole("button", { name: "Show responses" }).click();

    await page.locator("pre").first().waitFor();
    expect(await page.locator("pre").first().textContent()).toContain("<img src=x");
    expect(await page.evaluate("window.hurt")).toBeUndefined();
    expect(await page.locator("main img, main script").count()).toBe(0);
    expect(await page.locator("body").textContent()).not.toContain("very-secret");
    expect(requests.filter((asked) => !asked.startsWith(`${url}/`))).toEqual([]);
    expect(errors).toEqual([]);
  });

  it("disables an endpoint after it said what that does, and sends to it again", async () => {
    const { url, hooks } = await openEndpointBoard();
    const { page, errors } = await boards.open(`${url}/#/endpoint/webhooks/acme/billing`);
    await page.getByRole("row", { name: "rate 50/s this endpoint" }).waitFor();

    await page.getByRole("button", { name: "Disable", exact: true }).click();
    await page.getByText("The sender stops sending to this endpoint.").waitFor();
    await page.getByRole("textbox", { name: /^Reason/ }).fill("they asked for it");
    await page.getByRole("button", { name: "Disable endpoint" }).click();

    await page.getByText("acme / billing is disabled.").waitFor();
    expect((await hooks.endpoints.get(REF))!.disabled!.reason).toBe("they asked for it");
    await page.getByText("they asked for it").waitFor();
    await page.getByRole("button", { name: "Resume sending" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume sending" }).click();
    await page.getByText("Sending to acme / billing resumed.").waitFor();
    expect((await hooks.endpoints.get(REF))!.disabled).toBeUndefined();
    expect(errors).toEqual([]);
  });

  it("undoes a disabling by enabling that endpoint, and not what a colleague disabled since", async () => {
    const { url, hooks } = await openEndpointBoard();
    const { page, errors } = await boards.open(`${url}/#/endpoint/webhooks/acme/billing`);
    await page.getByRole("button", { name: "Disable", exact: true }).click();
    await page.getByRole("button", { name: "Disable endpoint" }).click();
    await page.getByText("acme / billing is disabled.").waitFor();
    await hooks.endpoints.disable({ tenant: "globex", id: "crm", reason: "theirs" });

    await page.locator("#toast").getByRole("button", { name: "Undo" }).click();

    const disabled = async (ref: { tenant: string; id: string }): Promise<boolean> =>
      (await hooks.endpoints.get(ref))!.disabled !== undefined;
    await waitUntil(async () => !(await disabled(REF)), "it is sent to again");
    expect(await disabled({ tenant: "globex", id: "crm" })).toBe(true);
    expect(errors).toEqual([]);
  });

  it("shows the endpoints of one tenant", async () => {
    const { url } = await openEndpointBoard();
    const { page } = await boards.open(`${url}/#/endpoints`);
    await page.getByText("acme / billing").waitFor();

    await page.keyboard.press("/");
    await page.locator("#search:focus").fill("globex");

    await page.getByText("acme / billing").waitFor({ state: "detached" });
    await page.getByText("globex / crm").waitFor();
    expect(await page.locator("tbody tr").count()).toBe(1);
  });

  it("says who works, where, and on how much", async () => {
    const { url } = await openEndpointBoard();
    const { page } = await boards.open(`${url}/#/workers`);
    const row = page.locator("tr", { hasText: "of 7" });

    await row.getByText(String(process.pid)).waitFor();
    await row.getByRole("link", { name: "webhooks" }).click();

    await page.getByRole("heading", { name: "webhooks" }).waitFor();
    expect(new URL(page.url()).hash).toBe("#/queue/webhooks");
  });

  it.each([1280, 400])("can be read and used by everybody: %i px wide", async (width) => {
    const { url, hooks } = await openEndpointBoard();
    await hooks.endpoints.put({ tenant: "initech", id: "tps", url: "https://example.com/x" });
    await hooks.endpoints.disable({ tenant: "initech", id: "tps", why: "gone" });
    const { page } = await boards.open(url, { width });

    const flaws = await flawsOf(page, url, [
      ["#/endpoints", "text=backing off"],
      ["#/endpoint/webhooks/acme/billing", "text=server-error 500"],
      ["#/workers", "text=of 7"],
    ]);

    expect(flaws).toEqual([]);
    await page.goto(`${url}/#/endpoint/webhooks/acme/billing`);
    await page.getByRole("button", { name: "Disable" }).press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });
});
