import { expect, it } from "vitest";
import { failureGroupOf } from "../../../src/queue/failure.ts";

const HEX = ["507f1f77bcf86cd799439011", "a1b2c3d4e5f60718293a4b5c"];
const UUIDS = ["6f1c2d3e-4b5a-4c6d-8e7f-901a2b3c4d5e", "0a1b2c3d-4e5f-4a6b-9c8d-7e6f5a4b3c2d"];

const groupOf = (reason: string): string => failureGroupOf(reason, {});

it.each<[string, (id: string) => string, readonly string[]]>([
  ["after an underscore", (id) => `no order order_${id}`, HEX],
  ["in capitals", (id) => `no order ${id.toUpperCase()}`, HEX],
  ["before an underscore", (id) => `${id}_v does not exist`, HEX],
  ["a UUID at the bound of 300 characters", (id) => `${"x".repeat(290)} ${id} is gone`, UUIDS],
  ["many before the bound", (id) => `${`${id} `.repeat(20)}are gone`, UUIDS],
  [
    "the name of a parent",
    (id) => `Parent failed: job ${id} of queue "imports": card was declined`,
    ["import-acme", "import of umbrella"],
  ],
  [
    "the name of a parent's parent",
    (id) => `Parent failed: job 7 of queue "a": Parent failed: job ${id} of queue "b": no`,
    ["import-acme", "import-umbrella"],
  ],
])("failures with different ids are in one group: %s", (_where, reasonOf, [one, other]) => {
  expect(groupOf(reasonOf(one!))).toBe(groupOf(reasonOf(other!)));
});

it("failures with different words are in different groups", () => {
  const reasons = [
    "card was declined",
    "card was stolen",
    'Parent failed: job a of queue "imports": card was declined',
    'Parent failed: job a of queue "exports": card was declined',
    `${"x".repeat(290)} is gone`,
    `${"x".repeat(290)} is here`,
    "feedface is a word and feedbeef too",
    "feedbeef is a word and feedface too",
  ];

  expect(new Set(reasons.map(groupOf)).size).toBe(reasons.length);
});

it("reads a reason of any length in little time", () => {
  expect(groupOf(`${"Parent failed: job ".repeat(50_000)}`)).toMatch(/^[0-9a-f]{10}$/);
});
