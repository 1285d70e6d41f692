import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { siteFile } from "../../../scripts/site-file.ts";

let home: string;
let site: string;

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "sluice-site-"));
  site = join(home, "dist");
  mkdirSync(join(site, "start"), { recursive: true });
  mkdirSync(join(home, "dist-other"));
  writeFileSync(join(site, "index.html"), "");
  writeFileSync(join(site, "start/first call.html"), "");
  writeFileSync(join(home, "package.json"), "{}");
  writeFileSync(join(home, "dist-other/page.html"), "");
});
afterAll(() => rmSync(home, { recursive: true }));

describe("the server of the built site", () => {
  it.each([
    ["/index.html", "index.html"],
    ["/start/first%20call.html?from=nav", "start/first call.html"],
  ])("finds the page %s", (url, file) => {
    expect(siteFile(site, url)).toBe(join(site, file));
  });

  it.each([
    ["a file above it", "/..%2fpackage.json"],
    ["a file above it, after a folder", "/start/..%2f..%2fpackage.json"],
    ["a file above it, with encoded dots", "/%2e%2e%2fpackage.json"],
    ["a file of a folder whose name begins like its own", "/..%2fdist-other%2fpage.html"],
    ["a file whose name cannot be decoded", "/%"],
    ["a file whose name has a zero byte", "/index.html%00"],
    ["a folder", "/start"],
    ["itself", "/"],
    ["a missing page", "/none.html"],
  ])("does not find %s: %s", (_what, url) => {
    expect(siteFile(site, url)).toBeUndefined();
  });
});
