import type { Command } from "ioredis";
import { describe, expect, it } from "vitest";
import { createUnanswered } from "../../../src/redis/unanswered.ts";

/** A command that is answered, or refused, when it is told to. */
class FakeCommand {
  readonly name: string;
  isResolved = false;
  readonly promise: Promise<void>;
  reject!: (error: Error) => void;
  #resolve!: () => void;

  constructor(name: string) {
    this.name = name;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.reject = reject;
    });
    // Whoever asks looks what comes of a script.
    if (name === "evalsha") this.promise.catch(() => undefined);
  }

  answer(): void {
    this.isResolved = true;
    this.#resolve();
  }

  /** What it came to, of what has come until now. */
  async outcome(): Promise<string> {
    const waits = new Promise<string>((resolve) => setImmediate(resolve, "waits"));
    const ended = this.promise.then(
      () => "answered",
      (error: Error) => error.message,
    );
    return Promise.race([ended, waits]);
  }
}

function ask(name: string, count: number, isInOrder = true) {
  const unanswered = createUnanswered({ isInOrder });
  const commands = Array.from({ length: count }, () => new FakeCommand(name));
  for (const command of commands) unanswered.add(command as unknown as Command);
  return { unanswered, commands };
}

function outcomesOf(commands: readonly FakeCommand[]): Promise<string[]> {
  return Promise.all(commands.map((command) => command.outcome()));
}

const CLOSED = new Error("closed");

/** In the next turn of the event loop. */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

describe.each([
  ["in the turn in which they were sent", async () => {}],
  ["later", nextTurn],
])("commands, %s", (_when, until) => {
  it.each([
    ["evalsha", true],
    ["evalsha", false],
    ["get", true],
  ])("%s are refused as far as they have no answer (in order: %s)", async (name, isInOrder) => {
    const { unanswered, commands } = ask(name, 20, isInOrder);
    const [first, ...others] = commands;
    first!.answer();
    await until();

    unanswered.refuseAll(CLOSED);

    expect(await outcomesOf([first!])).toEqual(["answered"]);
    expect(await outcomesOf(others)).toEqual(others.map(() => "closed"));
  });
});

it("a script that is overtaken by the last of its turn is refused nonetheless", async () => {
  const { unanswered, commands } = ask("evalsha", 16);
  const [slow, ...others] = commands;
  await nextTurn();
  for (const command of others) command.answer();
  await slow!.outcome();

  unanswered.refuseAll(CLOSED);

  expect(await slow!.outcome()).toBe("closed");
});

it("what was sent in a later turn is refused as well", async () => {
  const { unanswered } = ask("evalsha", 3);
  await nextTurn();
  const later = new FakeCommand("evalsha");
  unanswered.add(later as unknown as Command);
  await nextTurn();

  unanswered.refuseAll(CLOSED);

  expect(await later.outcome()).toBe("closed");
});

it.each([
  ["evalsha", 1],
  ["evalsha", 40],
  ["get", 1],
])("%s, %i times, is let go of with its answer", async (name, count) => {
  const { unanswered, commands } = ask(name, count);
  let refused = 0;
  await nextTurn();
  for (const command of commands) {
    command.answer();
    command.reject = () => (refused += 1);
  }
  await nextTurn();

  unanswered.refuseAll(CLOSED);

  expect(refused).toBe(0);
});

it("what nobody looks at may be refused", async () => {
  const { unanswered, commands } = ask("subscribe", 1);

  unanswered.refuseAll(CLOSED);

  // Nobody but the list has looked at its promise: an unhandled rejection would fail this test.
  await nextTurn();
  expect(commands[0]!.isResolved).toBe(false);
});
