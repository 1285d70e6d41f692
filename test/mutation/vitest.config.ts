import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Unit tests first: they are fast, and the first failure ends the run of a mutant. */
class UnitFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isUnit = ({ moduleId }: TestSpecification): boolean => moduleId.includes("/test/unit/");
    return [...sorted.filter(isUnit), ...sorted.filter((file) => !isUnit(file))];
  }
}

/** What the mutants are run against: the tests that need no other processes, as one project. */
export default defineConfig({
  resolve: { conditions: ["@sluice/source"] },
  ssr: { resolve: { conditions: ["@sluice/source"] } },
  test: {
    include: ["test/unit/**/*.test.ts", "test/conformance/**/*.test.ts"],
    // Of thousands of callers each: they take longer than all others together.
    exclude: ["test/unit/throttle/**/{free,held-back}-keys.test.ts"],
    // A mutant that makes a test wait for ever is found by this.
    testTimeout: 90_000,
    // A mutant runs a few tests of many files; a new environment for each would take most of the time.
    isolate: false,
    setupFiles: ["test/mutation/setup.ts", "test/support/setup/without-redis-url.ts"],
    globalSetup: ["test/support/setup/global-redis.ts"],
    env: { HISTORIES: "100" },
    sequence: { sequencer: UnitFirst },
  },
});
