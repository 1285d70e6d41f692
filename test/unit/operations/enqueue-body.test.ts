import { expect, it } from "vitest";
import { ENQUEUE_OPTION_NAMES } from "../../../src/queue/options.ts";
import { ENQUEUE_BODY } from "../../../src/server/decide/schemas.ts";

it("a request that enqueues a job may have all options of a job, and its data", () => {
  const { properties } = ENQUEUE_BODY as { readonly properties: object };

  expect(Object.keys(properties).toSorted()).toEqual([...ENQUEUE_OPTION_NAMES, "data"].toSorted());
});
