import { createSluice } from "sluice";
import { createServer } from "sluice/server";
import { describe, expect, it, onTestFinished } from "vitest";
import type { FastifyInstance } from "fastify";
import type * as z from "zod";
import { createProgram } from "../../../src/cli/program.ts";
import { createFacts } from "../../../src/operations/facts.ts";
import { OPERATIONS } from "../../../src/operations/index.ts";
import { scopeOf, type Door } from "../../../src/operations/operation.ts";
import { replyTo, type McpDoor } from "../../../src/server/operations/mcp.ts";

const QUIET = { warn() {}, error() {} };
const names = OPERATIONS.map(({ name }) => name);
const silent = { out() {}, err() {}, isTty: false, env: {} };

function door(role: "view" | "act" = "act"): McpDoor {
  const sluice = createSluice({ logger: QUIET });
  onTestFinished(() => sluice.close());
  const all = (): boolean => true;
  const mayUse: Door["caller"]["mayUse"] = (needs) => role === "act" || needs === "view";
  const caller = { by: () => "ann", mayUse, mayBucket: all, mayQueue: all };
  return { sluice, facts: createFacts(sluice), caller, fail() {} };
}

describe("the table of operations", () => {
  it("names each operation once", () => {
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(25);
  });

  it.each(OPERATIONS.map((each) => [each.name, each] as const))(
    "%s states its role, its privacy, and each of its fields",
    (_name, each) => {
      const { shape } = each.input as z.ZodObject;
      const scope = scopeOf(each);

      expect(["view", "act"]).toContain(each.needs);
      expect(Object.keys(shape)).toEqual(expect.arrayContaining([scope].filter(Boolean)));
      expect(each.privacy.names === "of the target").toBe(scope !== undefined);
      expect(each.privacy.data === "on request").toBe("data" in shape);
      expect(each.needs === "view" && each.undoable).toBe(false);
      const texts = Object.values(shape).map((schema) => (schema as z.ZodType).description);
      expect(texts.filter((text) => !/^[A-Z].*\.$/s.test(text ?? ""))).toEqual([]);
    },
  );

  it("lets view tokens send no POST except previews and trials", () => {
    const posted = OPERATIONS.filter(
      ({ needs, http }) => needs === "view" && !http.path.startsWith("GET "),
    );

    expect(posted.map(({ name }) => name)).toEqual([
      "bucket.preview",
      "bucket.trial",
      "queue.preview",
    ]);
  });

  it("is fully reachable over HTTP, on the command line and as MCP tools", async () => {
    const opened = door();
    const server = await createServer(opened.sluice, {
      insecureLocal: true,
      port: 0,
      logger: false,
    });
    onTestFinished(() => server.close());
    const program = createProgram(silent);
    const endpoints = program.commands.find((each) => each.name() === "endpoints")!;
    const commands = [
      ...program.commands.map((each) => each.name()),
      ...endpoints.commands.map((each) => `endpoints ${each.name()}`),
    ];
    const listed = await replyTo({ jsonrpc: "2.0", id: 1, method: "tools/list" }, opened);
    const { tools } = listed!.result as { tools: { name: string }[] };

    const missing = OPERATIONS.filter(({ name, http, cli }) => {
      const [method = "", url = ""] = http.path.split(" ");
      const word = cli.command.replace(/ [<[].*$/, "");
      const app = server.app as unknown as FastifyInstance;
      return !(
        app.hasRoute({ method: method as "GET", url }) &&
        commands.includes(word) &&
        tools.some((tool) => tool.name === name.replace(".", "_"))
      );
    });

    expect(missing).toEqual([]);
  });

  it("has no command option that another operation of the command reads differently", () => {
    const program = createProgram(silent);
    const all = [...program.commands, ...program.commands.flatMap((each) => each.commands)];

    for (const command of all) {
      const long = command.options.map((option) => option.long);
      expect(long).toEqual([...new Set(long)]);
    }
  });
});

describe("MCP", () => {
  const ask = (message: object, role?: "view") =>
    replyTo({ jsonrpc: "2.0", id: 1, ...message }, door(role));

  it("agrees on a version that it knows, else on its newest", async () => {
    const known = await ask({ method: "initialize", params: { protocolVersion: "2024-11-05" } });
    const other = await ask({ method: "initialize", params: { protocolVersion: "2099-01-01" } });

    expect(known?.result).toMatchObject({ protocolVersion: "2024-11-05" });
    expect(other?.result).toMatchObject({ protocolVersion: "2025-06-18" });
  });

  it("gives a read-only caller no tool that changes something", async () => {
    const listed = await ask({ method: "tools/list" }, "view");
    const called = await ask(
      { method: "tools/call", params: { name: "bucket_pause", arguments: { bucket: "a" } } },
      "view",
    );

    const { tools } = listed!.result as {
      tools: { name: string; annotations: { readOnlyHint: boolean } }[];
    };
    expect(tools.filter(({ annotations }) => !annotations.readOnlyHint)).toEqual([]);
    expect(tools.map(({ name }) => name)).toContain("bucket_look");
    expect(called?.error).toMatchObject({ code: -32_602 });
  });

  it.each([
    [{ method: "tools/destroy" }, -32_601],
    [{ method: 5 }, -32_600],
    [{ method: "tools/call", params: { name: "none" } }, -32_602],
  ])("refuses %j", async (message, code) => {
    expect((await ask(message))?.error?.code).toBe(code);
  });

  it("reports an unexpected error, and hides its text from clients", async () => {
    const failed: unknown[] = [];
    const facts = { ...door().facts, look: () => Promise.reject(new TypeError("secret")) };
    const broken = { ...door(), facts, fail: (error: unknown) => failed.push(error) };
    const params = { name: "overview", arguments: {} };

    const answer = await replyTo({ jsonrpc: "2.0", id: 1, method: "tools/call", params }, broken);

    expect(JSON.stringify(answer)).not.toContain("secret");
    expect(answer?.result).toMatchObject({ isError: true });
    expect(failed).toHaveLength(1);
  });

  it("answers no notification", async () => {
    expect(await replyTo({ jsonrpc: "2.0", method: "notifications/initialized" }, door())).toBe(
      undefined,
    );
  });

  it.each([
    [{ bucket: "none" }, 'There is no bucket "none".'],
    [{ bucket: "a", sort: "name" }, "sort"],
    [{}, "bucket"],
  ])("returns a readable error for %j to a model", async (given, words) => {
    const reply = await ask({
      method: "tools/call",
      params: { name: "bucket_look", arguments: given },
    });

    expect(reply?.result).toMatchObject({
      isError: true,
      content: [{ type: "text", text: expect.stringContaining(words) }],
    });
  });
});
