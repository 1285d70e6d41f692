import { inspect } from "node:util";
import { describe, expect, it, vi } from "vitest";
import { InvalidOptionError } from "../../../../src/core/errors.ts";
import { throttledClient } from "../../../../src/throttle/wrap/client.ts";
import { createFakeBucket } from "../../../support/draws/fake-bucket.ts";

class Charges {
  readonly #key = "sk_test";
  readonly limits = [1, 2];

  async create(amount: number): Promise<string> {
    return `${this.#key} ${amount}`;
  }

  async createTwo(amount: number): Promise<string> {
    return `${await this.create(amount)}, ${await this.create(amount)}`;
  }

  url(): string {
    return `https://example.com/${this.#key}`;
  }

  get key(): string {
    return this.#key;
  }

  toString(): string {
    return `charges of ${this.#key}`;
  }

  *[Symbol.iterator](): Generator<string> {
    yield this.#key;
  }
}

class Api {
  #timeoutMs = 0;
  readonly charges = new Charges();
  readonly refunds = { create: async (amount: number) => -amount };
  readonly chat = { completions: { create: async (text: string) => text } };
  readonly Charges = Charges;
  readonly version = "1";

  withTimeout(timeoutMs: number): this {
    this.#timeoutMs = timeoutMs;
    return this;
  }

  get timeoutMs(): number {
    return this.#timeoutMs;
  }

  set timeoutMs(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }
}

describe("a throttled client", () => {
  it("paces every method that can be reached, with its own this, arguments and result", async () => {
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient(new Api(), bucket);

    await expect(api.charges.create(5)).resolves.toBe("sk_test 5");
    await expect(api.chat.completions.create("hi")).resolves.toBe("hi");

    expect(paced).toEqual([[5], ["hi"]]);
  });

  it("does not pace again what a method calls of its own object", async () => {
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient(new Api(), bucket);

    await api.charges.createTwo(5);

    expect(paced).toEqual([[5]]);
  });

  it.each([
    ["charges.create", [[1]]],
    ["charges.*", [[1], []]],
    ["*.create", [[1], [2]]],
    ["chat.completions.create", [["hi"]]],
    ["chat.*.create", [["hi"]]],
    ["*.*.*", [["hi"]]],
    ["charges", []],
  ])("paces by %j only what it names", async (path, expected) => {
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient(new Api(), bucket, { methods: [path] });

    await api.charges.create(1);
    api.charges.url();
    await api.refunds.create(2);
    await api.chat.completions.create("hi");

    expect(paced).toEqual(expected);
  });

  it("leaves a method that is not named as it was, with its own this", () => {
    const { bucket } = createFakeBucket();
    const api = throttledClient(new Api(), bucket, { methods: ["charges.create"] });

    expect(api.charges.url()).toBe("https://example.com/sk_test");
  });

  it("gives the same object and the same method each time", () => {
    const { bucket } = createFakeBucket();
    const api = throttledClient(new Api(), bucket, { methods: ["charges.create"] });

    expect(api.charges).toBe(api.charges);
    for (const name of ["create", "url"]) {
      expect(Reflect.get(api.charges, name)).toBe(Reflect.get(api.charges, name));
    }
  });

  it("distinguishes two paths to one object", async () => {
    const { bucket, paced } = createFakeBucket();
    const charges = new Charges();
    const api = throttledClient({ a: charges, b: charges }, bucket, { methods: ["a.create"] });

    await api.b.create(1);
    await api.a.create(2);

    expect(paced).toEqual([[2]]);
  });

  it("goes round in an object that contains itself", async () => {
    interface Loop {
      self: Loop;
      ping(): Promise<string>;
    }
    const loop = { ping: async () => "pong" } as Loop;
    loop.self = loop;
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient(loop, bucket);

    await api.self.self.ping();

    expect(api.self).toBe(api);
    expect(paced).toHaveLength(1);
  });

  it("stays what it was: class, getters, setters, symbols, strings and data", () => {
    const { bucket, paced } = createFakeBucket();
    const real = new Api();
    const api = throttledClient(real, bucket);

    api.timeoutMs = 9;

    expect(real.timeoutMs).toBe(9);
    expect(api).toBeInstanceOf(Api);
    expect(api.constructor).toBe(Api);
    expect(api.charges.key).toBe("sk_test");
    expect(String(api.charges)).toBe("charges of sk_test");
    expect([...api.charges]).toEqual(["sk_test"]);
    expect(api.charges.limits).toBe(real.charges.limits);
    expect(api.version).toBe("1");
    expect(Object.keys(api)).toEqual(Object.keys(real));
    expect("charges" in api).toBe(true);
    expect(inspect(api)).toBe(inspect(real));
    expect(paced).toEqual([]);
  });

  it("lets its classes make objects, which are their instances", () => {
    const { bucket } = createFakeBucket();
    const api = throttledClient(new Api(), bucket);

    const charges = new api.Charges();

    expect(charges).toBeInstanceOf(api.Charges);
    expect(charges.url()).toBe("https://example.com/sk_test");
  });

  it("is awaited at once, unless it is a promise of its own", async () => {
    const { bucket, paced } = createFakeBucket();
    const ready = Promise.resolve("ready");

    const api = throttledClient({ ready, ping: async () => "pong" }, bucket);

    await expect(api.ready).resolves.toBe("ready");
    expect((await Promise.resolve(api)).ping).toBe(api.ping);
    expect(paced).toEqual([]);
  });

  it("stays paced after a method that returns its own object", async () => {
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient(new Api(), bucket, { methods: ["charges.create"] });

    await api.withTimeout(5).charges.create(1);

    expect(api.timeoutMs).toBe(5);
    expect(paced).toEqual([[1]]);
  });

  it("paces methods of frozen objects too", async () => {
    const { bucket, paced } = createFakeBucket();
    const charges = Object.freeze({ create: async (amount: number) => amount });
    const api = throttledClient(Object.freeze({ charges }), bucket);

    await api.charges.create(1);

    expect(paced).toEqual([[1]]);
    expect(Object.keys(api.charges)).toEqual(["create"]);
    expect(Object.getOwnPropertyDescriptor(api, "charges")?.value).toBe(api.charges);
    expect(() => {
      (api as { charges: unknown }).charges = 1;
    }).toThrow(TypeError);
  });

  it("paces a method that was put there later, once, and also by another name", async () => {
    const { bucket, paced } = createFakeBucket();
    const api = throttledClient(
      { refunds: { create: async (n: number) => n, again: vi.fn() } },
      bucket,
    );

    api.refunds.again = api.refunds.create as never;
    await api.refunds.again(7);

    expect(paced).toEqual([[7]]);
  });

  it("paces functions that have methods, and their methods", async () => {
    const { bucket, paced } = createFakeBucket();
    const messages = Object.assign(async (id: string) => id, {
      create: async (text: string) => text,
    });
    const api = throttledClient({ messages }, bucket);
    const named = throttledClient({ messages }, bucket, { methods: ["messages.create"] });

    await api.messages("id");
    await api.messages.create("text");
    await api.messages.bind(undefined, "bound")();
    await named.messages("not paced");
    await named.messages.create("named");

    expect(paced).toEqual([["id"], ["text"], ["bound"], ["named"]]);
    expect(api.messages.name).toBe(messages.name);
  });

  it("paces a client that is a function itself", async () => {
    const { bucket, paced } = createFakeBucket();
    const request = Object.assign(async (url: string) => url, { get: async (url: string) => url });
    const api = throttledClient(request, bucket);

    await api("a");
    await api.get("b");

    expect(paced).toEqual([["a"], ["b"]]);
  });

  it("hands the options on, without the methods", () => {
    const { bucket, given } = createFakeBucket();
    const key = (tenant: string): string => tenant;

    throttledClient(new Api(), bucket, { methods: ["charges.*"], key, priority: "low" });

    expect(given).toEqual([{ key, priority: "low" }]);
  });

  it.each([
    [{ methods: ["charge.create"] }, "methods[0]", 'has no "charge"; did you mean charges?'],
    [{ methods: ["charges.*", "withTimout"] }, "methods[1]", "did you mean withTimeout?"],
    [{ methods: ["zzz.create"] }, "methods[0]", "write the path from the client on"],
    [{ methods: ["charges.craete"] }, "methods[0]", "did you mean charges.create?"],
    [{ methods: ["chat.completion.create"] }, "methods[0]", "did you mean chat.completions?"],
    [{ methods: ["chat.zzz.create"] }, "methods[0]", 'chat has no "zzz"; write the path'],
    [{ methods: [""] }, "methods[0]", "write a path"],
    [{ methods: ["charges..create"] }, "methods[0]", "write a path"],
    [{ methods: ["**"] }, "methods[0]", "write a path"],
    [{ methods: ["charges.cr*"] }, "methods[0]", "write a path"],
    [{ methods: [5] }, "methods[0]", "write a path"],
    [{ methods: [] }, "methods", "name at least one method"],
    [{ methods: "charges" }, "methods", "name at least one method"],
    [{ maxWait: 5 }, "maxWait", "did you mean maxWaitMs?"],
    [null, "options", "give an object of options"],
  ])("refuses the options %j, naming %s", (options, option, remedy) => {
    const { bucket } = createFakeBucket();

    const wrap = (): unknown => throttledClient(new Api(), bucket, options as never);

    expect(wrap).toThrow(InvalidOptionError);
    expect(wrap).toThrow(expect.objectContaining({ option }));
    expect(wrap).toThrow(remedy);
  });

  it.each([undefined, null, "stripe"])("refuses %j as a client", (client) => {
    const { bucket } = createFakeBucket();

    expect(() => throttledClient(client as never, bucket)).toThrow(
      'throttledClient(): option "client"',
    );
  });
});
