import { connect } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { createSecret, listen, sign } from "sluice/webhooks";
import { waitUntil } from "../../support/async/wait-until.ts";

it("a receiver for development verifies what comes, and prints it", async () => {
  const secret = createSecret();
  const lines: string[] = [];
  const listener = await listen(0, { secret, print: (line) => lines.push(line) });
  onTestFinished(() => listener.close());
  const body = JSON.stringify({ type: "note.made" });
  const post = async (headers: Readonly<Record<string, string>>): Promise<number> =>
    (await fetch(`${listener.url}/hooks`, { method: "POST", body, headers })).status;

  const good = await post(sign({ id: "m-1", body, secret }));
  const bad = await post(sign({ id: "m-1", body, secret: createSecret() }));

  expect([good, bad]).toEqual([204, 400]);
  expect(lines[0]).toBe('/hooks 204 verified note.made m-1 {"type":"note.made"}');
  expect(lines[1]).toContain("/hooks 400 refused");
});

it.each([
  ["/fail/503", 503],
  ["/fail/429/billing", 429],
  ["/fail/200", 204],
  ["/fail/5031", 204],
])("a receiver for development replies to %s with %i", async (path, status) => {
  const secret = createSecret();
  const lines: string[] = [];
  const listener = await listen(0, { secret, print: (line) => lines.push(line) });
  onTestFinished(() => listener.close());
  const body = JSON.stringify({ type: "note.made" });
  const post = async (given: string): Promise<number> => {
    const headers = sign({ id: "m-1", body, secret: given });
    return (await fetch(listener.url + path, { method: "POST", body, headers })).status;
  };

  expect(await post(secret)).toBe(status);
  expect(lines[0]).toContain(`${path} ${status} verified`);
  expect(await post(createSecret())).toBe(400);
});

it("a receiver for development survives a sender that disconnects in the middle", async () => {
  const secret = createSecret();
  const lines: string[] = [];
  const listener = await listen(0, { secret, print: (line) => lines.push(line) });
  onTestFinished(() => listener.close());

  const socket = connect(Number(new URL(listener.url).port), "127.0.0.1");
  socket.write("POST /hooks HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf", () =>
    socket.resetAndDestroy(),
  );

  // What it does not handle would end the process.
  await waitUntil(() => lines.length === 1, "it is printed");
  expect(lines[0]).toContain("/hooks 500 refused");
});

it.each([
  ["a port that is none", 70_000, { secret: createSecret() }, "port"],
  ["no secret", 0, {}, "secret"],
  ["an unknown option", 0, { secret: createSecret(), host: "0.0.0.0" }, "host"],
])("a receiver for development refuses %s", async (_what, port, options, option) => {
  await expect(listen(port, options as never)).rejects.toMatchObject({
    code: "ERR_INVALID_OPTION",
    option,
  });
});
