import fc from "fast-check";
import { expect, it } from "vitest";
import { headsOfText, encodeKey } from "../../../src/core/key-path.ts";
import { lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

/**
 * The bound of start-time fair queueing, in each line by itself: while two who stand side by side in a line both have jobs,
 * what they get, each divided by its weight, differs by no more than the largest job of each, divided so.
 */
const byHand = lanesByHand();

const KEYS = [
  ["solo"],
  ["acme"],
  ["acme", "a"],
  ["acme", "b"],
  ["acme", "b", "x"],
  ["acme", "b", "y"],
  ["zeta", "a"],
  ["zeta", "b"],
  ["zeta", "c", "x"],
].map(encodeKey);

const MOST_SHARE = 3;

type Act =
  | {
      readonly act: "enqueue";
      readonly key: number;
      readonly count: number;
      readonly share: number;
    }
  | { readonly act: "take"; readonly count: number };

const ACT: fc.Arbitrary<Act> = fc.oneof(
  fc.record({
    act: fc.constant("enqueue" as const),
    key: fc.nat(KEYS.length - 1),
    count: fc.integer({ min: 1, max: 6 }),
    share: fc.integer({ min: 1, max: MOST_SHARE }),
  }),
  fc.record({ act: fc.constant("take" as const), count: fc.integer({ min: 1, max: 9 }) }),
);

/** Where a key stands: in the line of all, then in that of each of its heads; those with jobs of their own in their own. */
function placesOf(key: string): readonly { readonly line: string; readonly item: string }[] {
  const heads = headsOfText(key);
  const places = heads.map((item, index) => ({ line: heads[index - 1] ?? "", item }));
  return KEYS.some((each) => each !== key && headsOfText(each).includes(key))
    ? [...places, { line: key, item: key }]
    : places;
}

/** Keeps what each has had, and how far two who both have jobs have moved apart since both have some. */
function createJudge(weightOf: (text: string, line: string) => number) {
  const parked = new Map<string, number>();
  const had = new Map<string, number>();
  const bounds = new Map<string, { least: number; most: number }>();
  const faults: string[] = [];
  const nameOf = (line: string, item: string): string => `${line}>${item}`;
  const lines = new Map<string, Set<string>>();
  for (const { line, item } of KEYS.flatMap(placesOf)) {
    lines.set(line, (lines.get(line) ?? new Set()).add(item));
  }

  function look(): void {
    for (const [line, items] of lines) {
      for (const one of items)
        for (const other of items) if (one < other) compare(line, one, other);
    }
  }

  function compare(line: string, one: string, other: string): void {
    const names = [nameOf(line, one), nameOf(line, other)] as const;
    const pair = names.join(" beside ");
    if (names.some((name) => (parked.get(name) ?? 0) === 0)) return void bounds.delete(pair);
    const weights = [weightOf(one, line), weightOf(other, line)] as const;
    const apart = (had.get(names[0]) ?? 0) / weights[0] - (had.get(names[1]) ?? 0) / weights[1];
    const seen = bounds.get(pair) ?? { least: apart, most: apart };
    const now = { least: Math.min(seen.least, apart), most: Math.max(seen.most, apart) };
    bounds.set(pair, now);
    const bound = MOST_SHARE / weights[0] + MOST_SHARE / weights[1];
    if (now.most - now.least > bound + 1e-9)
      faults.push(`${pair}: ${now.most - now.least} > ${bound}`);
  }

  return {
    faults,
    come(key: string, count: number): void {
      for (const { line, item } of placesOf(key)) {
        const name = nameOf(line, item);
        parked.set(name, (parked.get(name) ?? 0) + count);
      }
      look();
    },
    go(key: string, share: number): void {
      for (const { line, item } of placesOf(key)) {
        const name = nameOf(line, item);
        had.set(name, (had.get(name) ?? 0) + share);
        parked.set(name, parked.get(name)! - 1);
      }
      look();
    },
  };
}

it("lanes differ from their shares by weight by at most one job each, in every order", async () => {
  const weights = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 24, maxLength: 24 });
  const history = fc.tuple(weights, fc.array(ACT, { minLength: 40, maxLength: 80 }));
  await fc.assert(
    fc.asyncProperty(history, async ([given, acts]) => {
      // What a history that has failed left, while a shorter one is looked for.
      await byHand.takeIds(1_000);
      const texts = [...new Set(KEYS.flatMap(headsOfText))];
      const weightOf = (text: string, line: string): number =>
        text === line ? 1 : given[texts.indexOf(text)]!;
      const judge = createJudge(weightOf);
      const shareOf = new Map<string, number>();
      const left = new Set<string>();

      async function takeSome(count: number): Promise<void> {
        for (const id of await byHand.takeIds(count)) {
          expect(left.delete(id)).toBe(true);
          judge.go(id.slice(0, id.indexOf("-")), shareOf.get(id)!);
        }
      }

      for (const act of acts) {
        if (act.act === "take") {
          await takeSome(act.count);
          continue;
        }
        const key = KEYS[act.key]!;
        const weight = headsOfText(key).map((head) => weightOf(head, ""));
        const ids = await byHand.enqueue(key, act.count, { weight, share: act.share });
        for (const id of ids) {
          left.add(id);
          shareOf.set(id, act.share);
        }
        judge.come(key, act.count);
      }
      await takeSome(1_000);

      expect(judge.faults).toEqual([]);
      expect(left.size).toBe(0);
      expect(await byHand.kept()).toEqual(["lanes:state"]);
    }),
    { numRuns: 25 },
  );
});
