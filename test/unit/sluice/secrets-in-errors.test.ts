import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { createSluice } from "sluice";
import { createServer } from "sluice/server";
import { createWebhooks, verify } from "sluice/webhooks";

const SECRET = "a9f3c0d2e8b14756-of-nobody";

describe("an error about an option does not show a secret", () => {
  it.each([
    [
      "a token instead of its object",
      { tokens: [SECRET] },
      /tokens\[0\].*\{ token, role: "act" \}/,
    ],
    ["a token instead of the list", { tokens: SECRET }, /tokens.*\[\{ token, role: "act" \}\]/],
    ["a token of a wrong form", { tokens: [{ token: `${SECRET} x`, role: "act" }] }, /visible/],
    ["a token by another name", { tokens: [{ key: SECRET, role: "act" }] }, /no such option/],
    ["a role that is the token", { tokens: [{ token: { is: SECRET }, role: "act" }] }, /token/],
    ["a list within the list", { tokens: [[SECRET]] }, /role/],
    ["a token beside the others", { token: SECRET }, /did you mean tokens/],
    ["a password", { password: SECRET }, /no such option/],
    ["the token as options", SECRET, /object of options/],
    ["a list of tokens as options", [SECRET], /object of options/],
    ["a key that is no PEM", { insecureLocal: true, tls: { key: { pem: SECRET } } }, /PEM/],
    ["TLS that is a key", { insecureLocal: true, tls: SECRET }, /key, cert/],
    ["a key by another name", { insecureLocal: true, tls: { privateKey: SECRET } }, /no such/],
    [
      "a header of a forward",
      { insecureLocal: true, forward: { up: { to: "http://a", headers: { a: [SECRET] } } } },
      /headers/,
    ],
    [
      "headers of an upstream",
      { insecureLocal: true, forward: { up: { to: [{ to: "http://a", headers: SECRET }] } } },
      /headers|URL/,
    ],
  ])("createServer(): %s", async (_what, options, remedy) => {
    const sluice = createSluice({ redis: "memory" });

    const error: unknown = await createServer(sluice, options as never).catch(
      (thrown: unknown) => thrown,
    );
    await sluice.close();

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect(String(error)).toMatch(remedy);
    expect(inspect(error, { depth: 9 })).not.toContain(SECRET);
    expect(JSON.stringify(error)).not.toContain(SECRET);
  });

  it("shows the mistake beside a token", async () => {
    const sluice = createSluice({ redis: "memory" });
    const options = { tokens: [{ token: SECRET, role: "admin" as "act" }] };

    const starting = createServer(sluice, options);

    await expect(starting).rejects.toThrow(/option "tokens\[0\]\.role" is "admin"; give "view"/);
    await sluice.close();
  });

  it.each([
    ["a key of webhooks by another name", () => ({ key: `k1:${SECRET}` })],
    ["keys of webhooks as a list", () => ({ keys: [SECRET] })],
  ])("createWebhooks(): %s", async (_what, options) => {
    const sluice = createSluice({ redis: "redis://127.0.0.1:1" });

    let error: unknown;
    try {
      createWebhooks(sluice, options() as never);
    } catch (thrown) {
      error = thrown;
    }
    await sluice.close();

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect(inspect(error, { depth: 9 })).not.toContain(SECRET);
  });

  it.each([
    ["a token of Redis", { redisToken: SECRET }],
    ["a password of Redis", { redis: { host: "a", password: { is: SECRET } } }],
    ["an access key", { accessKey: SECRET }],
    ["credentials", { credentials: { user: SECRET } }],
  ])("createSluice(): %s", (_what, options) => {
    let error: unknown;
    try {
      void createSluice(options as never).close();
    } catch (thrown) {
      error = thrown;
    }

    expect(inspect(error ?? "", { depth: 9 })).not.toContain(SECRET);
  });
});

it("verify() does not show the secret that it was given", () => {
  let error: unknown;
  try {
    verify({ body: "{}", headers: {}, secret: { is: SECRET } as never });
  } catch (thrown) {
    error = thrown;
  }

  expect(error).toBeDefined();
  expect(inspect(error, { depth: 9 })).not.toContain(SECRET);
});
