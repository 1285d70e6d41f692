import { DelayedError, ErrorCode, UnrecoverableError, WaitingError, Worker } from "bullmq";
import { describe, expect, it } from "vitest";
import {
  CONTROL_MESSAGE,
  CONTROL_NAMES,
  finalError,
  isFinalError,
  movedToDelayed,
  movedToWait,
  NOT_THERE,
  WRONG_STATE,
} from "../../../src/queue/bullmq/errors.ts";

describe("BullMQ's names in code that does not import BullMQ", () => {
  it("are those of the errors by which a processor gives commands", () => {
    const ours = [finalError("why"), movedToDelayed(), movedToWait()];
    const theirs = [new UnrecoverableError(), new DelayedError(), new WaitingError()];

    expect(ours.map(({ name }) => name)).toEqual(theirs.map(({ name }) => name));
  });

  it("make an error final only if Sluice threw it", () => {
    const theirs = Object.assign(new Error("away"), { name: "UnrecoverableError" });

    expect(isFinalError(finalError("why"))).toBe(true);
    expect(isFinalError(theirs)).toBe(false);
  });

  it("are among those that a handler's error must not have", () => {
    expect(CONTROL_NAMES).toContain(new DelayedError().name);
    expect(CONTROL_NAMES).toContain(new WaitingError().name);
    expect(Worker.RateLimitError().message).toBe(CONTROL_MESSAGE);
    expect(CONTROL_NAMES).toContain(
      Worker.RateLimitError().name.replace(/^Error$/, "RateLimitError"),
    );
  });

  it("are the numbers with which its scripts reject", () => {
    expect({ NOT_THERE, WRONG_STATE }).toEqual({
      NOT_THERE: ErrorCode.JobNotExist,
      WRONG_STATE: ErrorCode.JobNotInState,
    });
  });
});
