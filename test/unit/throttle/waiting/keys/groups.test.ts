import { expect, it } from "vitest";
import { compilePolicy } from "../../../../../src/core/policy/policy.ts";
import { createGroups, type Caller } from "../../../../../src/throttle/waiting/group.ts";
import type { SlotContext } from "../../../../../src/throttle/slot/slot.ts";

const policy = compilePolicy("test", { rate: "100/s", perKey: { rate: "10/s" } });

it("keeps the group of a key with a waiting call, and forgets thousands of idle groups", () => {
  const groups = createGroups({ name: "test" } as SlotContext, () => policy);
  const idle = groups.of({ key: "idle" });
  const busy = groups.of({ key: "busy" });
  busy.line.push({ priority: "normal" } as Caller);

  for (let key = 0; key < 12_000; key++) groups.of({ key: `key ${key}` });

  expect(groups.of({ key: "busy" })).toBe(busy);
  expect(groups.of({ key: "idle" })).not.toBe(idle);
});
