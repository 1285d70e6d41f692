import { expect, it } from "vitest";
import {
  constant,
  endlessMs,
  flag,
  flat,
  from,
  fromEach,
  int,
  json,
  list,
  mapped,
  oneOf,
  optional,
  partNames,
  readerOf,
  rest,
  text,
  writerOf,
} from "../../../src/stores/redis/scripts/shape.ts";

const FIELDS = {
  base: from(({ queue }: { readonly queue: string }) => `{${queue}}:`),
  most: constant(10),
  isLast: flag,
  forMs: endlessMs,
  since: optional(int),
  cronMs: optional(int, 0),
  about: json<{ readonly a: number }>(),
  jobs: rest({ id: text, key: optional(text) }),
};

it("arguments come in the order of their fields, and those of each value together", () => {
  const jobs = [{ id: "1" }, { id: "2", key: "acme" }];

  const args = writerOf(FIELDS)({
    jobs,
    queue: "mail",
    isLast: true,
    forMs: Infinity,
    about: { a: 1 },
  });

  expect(args).toEqual(["{mail}:", 10, 1, -1, "", 0, '{"a":1}', "1", "", "2", "acme"]);
});

it("the names of arguments say which of them repeat", () => {
  const ids = fromEach(({ count }: { readonly count: number }) => Array(count).fill("x"));

  expect(partNames(FIELDS).slice(5)).toEqual(["cronMs", "about", { each: ["id", "key"] }]);
  expect(partNames({ name: text, ids })).toEqual(["name", { each: ["ids"] }]);
});

it("the parts of a reply become fields", () => {
  const reply = readerOf({
    isDone: flag,
    forMs: endlessMs,
    key: optional(text),
    gone: optional(text),
    move: oneOf(["refused", "moved"]),
    pauses: flat({ key: text, forMs: int }),
    lanes: list({ key: text, jobs: int }),
    none: list(text),
    double: mapped(int, (value) => value * 2),
    ids: rest(text),
  });

  const read = reply.read([
    1,
    -1,
    "",
    null,
    1,
    ["a", "5", "b", "6"],
    [["a", 1]],
    {},
    "4",
    "7",
    "8",
  ]);

  expect(read).toEqual({
    isDone: true,
    forMs: Infinity,
    key: undefined,
    gone: undefined,
    move: "moved",
    pauses: [
      { key: "a", forMs: 5 },
      { key: "b", forMs: 6 },
    ],
    lanes: [{ key: "a", jobs: 1 }],
    none: [],
    double: 8,
    ids: ["7", "8"],
  });
});
