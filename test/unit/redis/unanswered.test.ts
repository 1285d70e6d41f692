import type { Command } from "ioredis";
import { expect, it } from "vitest";
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

it.each([
  ["evalsha", 100, true],
  ["evalsha", 100, false],
  ["evalsha", 3, true],
  ["get", 20, true],
])("%s, %i times, is refused as far as it has no answer (in order: %s)", async (...given) => {
  const { unanswered, commands } = ask(...given);
  const [first, ...others] = commands;
  first!.answer();

  unanswered.refuseAll(CLOSED);

  expect(await outcomesOf([first!])).toEqual(["answered"]);
  expect(await outcomesOf(others)).toEqual(others.map(() => "closed"));
});

it("a script that is overtaken by the last of its batch is refused nonetheless", async () => {
  const { unanswered, commands } = ask("evalsha", 16);
  const [slow, ...others] = commands;
  for (const command of others) command.answer();
  await others.at(-1)!.promise;
  await slow!.outcome();

  unanswered.refuseAll(CLOSED);

  expect(await slow!.outcome()).toBe("closed");
});

it("what has its answer is let go of, so that a second refusal reaches nobody", async () => {
  const { unanswered, commands } = ask("evalsha", 32);
  let refused = 0;
  for (const command of commands) command.answer();
  await outcomesOf(commands);
  for (const command of commands) {
    command.reject = () => (refused += 1);
    unanswered.add(command as unknown as Command);
  }
  await outcomesOf(commands);

  unanswered.refuseAll(CLOSED);

  expect(refused).toBe(0);
});

it("what nobody looks at may be refused", async () => {
  const { unanswered, commands } = ask("subscribe", 1);

  unanswered.refuseAll(CLOSED);

  // Nobody but the list has looked at its promise: an unhandled rejection would fail this test.
  await new Promise((resolve) => setImmediate(resolve));
  expect(commands[0]!.isResolved).toBe(false);
});
