import { describe, expect, it } from "vitest";
import { onOneLine, parseDuration, table } from "../../../src/cli/io.ts";
import { duration } from "../../../src/operations/text.ts";
import { run } from "../../../src/cli/program.ts";

describe("the output of the command line", () => {
  it.each([
    [0, "0 ms"],
    [999, "999 ms"],
    [1_500, "1.5 s"],
    [90_000, "1.5 min"],
    [7_200_000, "2 h"],
    [172_800_000, "2 d"],
    [Infinity, "forever"],
  ])("%d ms as %s", (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  it.each([
    ["90s", 90_000],
    ["15m", 900_000],
    ["2 h", 7_200_000],
    ["1.5d", 129_600_000],
    ["250ms", 250],
  ])("reads %s", (text, ms) => {
    expect(parseDuration("--for", text)).toBe(ms);
  });

  it.each(["", "5", "5 years", "-5s", "0s", "s", "1e3s"])("refuses %j as a time", (text) => {
    expect(() => parseDuration("--for", text)).toThrow(/--for.*90s, 15m or 2h/);
  });

  it("strips control characters from foreign text", () => {
    expect(onOneLine("a\u001B[2Jb\nc\u202Ed")).toBe("a?[2Jb?c?d");
    expect(table(["name"], [["x\u001B]0;owned\u0007"]])).toBe("NAME\nx?]0;owned?");
  });
});

describe("the command line", () => {
  async function runs(...args: string[]) {
    let [out, err] = ["", ""];
    const io = {
      out: (text: string) => void (out += text),
      err: (text: string) => void (err += text),
      isTty: false,
      env: {},
    };
    return { code: await run(args, io), out, err };
  }

  it.each([
    [["sett"], /Did you mean set/],
    [["bucket"], /missing required argument/],
    [["bucket", "a", "b"], /too many arguments/],
    [["buckets"], /--redis redis:\/\/host:6379/],
    [["doctor"], /--redis redis:\/\/host:6379/],
    [["buckets", "--redis", "http://x"], /redis/],
    [["changes", "--redis", "redis://127.0.0.1:1", "--limit", "0"], /--limit/],
    [["buckets", "--colour"], /unknown option/],
  ])("refuses %j with exit code 2", async (args, why) => {
    const { code, err } = await runs(...args);

    expect(err).toMatch(why);
    expect(code).toBe(2);
  });

  it("answers --help", async () => {
    const { code, out } = await runs("--help");

    expect(code).toBe(0);
    expect(out).toContain("Exit codes");
  });

  it("reports with exit code 4 that Redis does not respond", async () => {
    const { code, err } = await runs("doctor", "--redis", "redis://127.0.0.1:1");

    expect(code).toBe(4);
    expect(err).toMatch(/Redis does not answer: .*ECONNREFUSED/);
  });
});
