import { describe, expect, it, vi } from "vitest";
import { throttledClient } from "../../../../src/throttle/wrap/client.ts";
import { createFakeBucket } from "../../../support/draws/fake-bucket.ts";

const say = async (text: string): Promise<string> => text;

class Named {
  readonly [Symbol.toStringTag]: string = "Chat";

  create(text: string): Promise<string> {
    return say(text);
  }
}

class Events extends EventTarget {
  create(text: string): Promise<string> {
    return say(text);
  }
}

describe("a throttled client", () => {
  it("accepts paths that only a getter or a proxy could verify", async () => {
    const { bucket, paced } = createFakeBucket();
    const made = vi.fn(() => ({ create: async (text: string) => text }));
    const client = {
      later: undefined as { create(text: string): Promise<string> } | undefined,
      get lazy() {
        return made();
      },
      any: new Proxy({} as Record<string, (text: string) => Promise<string>>, {
        get: () => async (text: string) => text,
      }),
    };

    const methods = ["later.create", "lazy.create", "any.create"];
    const api = throttledClient(client, bucket, { methods });
    expect(made).not.toHaveBeenCalled();
    client.later = { create: async (text) => text };
    await api.later?.create("later");
    await api.lazy.create("lazy");
    await api.any["create"]!("any");

    expect(paced).toEqual([["later"], ["lazy"], ["any"]]);
  });

  it.each([
    ["a class", new (class Chat extends Named {})()],
    ["a class of events", new (class Chat extends Events {})()],
    ["an object", Object.assign(Object.create(null) as Named, new Named(), { create: say })],
  ])("paces the methods of %s that names its own kind", async (_what, chat) => {
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient({ chat }, bucket, { methods: ["chat.create"] });

    await api.chat.create("hi");

    expect(paced).toEqual([["hi"]]);
  });

  it.each([
    [1],
    new Map(),
    new (class Cache extends Map {})(),
    new Date(0),
    /a/,
    new URL("http://a.example"),
    new Headers(),
    new AbortController().signal,
    new Uint8Array(1),
    Buffer.from("a"),
    new Intl.NumberFormat(),
    new Error("a"),
    Promise.resolve(1),
    new Blob([]),
  ])("leaves %o of the language or the platform as it is", (value) => {
    const { bucket } = createFakeBucket();

    expect(throttledClient({ value }, bucket).value).toBe(value);
  });
});
