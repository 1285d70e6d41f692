import { defineConfig } from "vitest/config";

const source = {
  resolve: { conditions: ["@sluice/source"] },
  ssr: { resolve: { conditions: ["@sluice/source"] } },
};
const redis = { globalSetup: ["test/support/global-redis.ts"] };

/** Integration and fault tests start processes and share two cores, so their files run one after another. */
export default defineConfig({
  test: {
    projects: [
      { ...source, test: { name: "unit", include: ["test/unit/**/*.test.ts"] } },
      {
        ...source,
        test: {
          name: "conformance",
          include: ["test/conformance/**/*.test.ts"],
          testTimeout: 120_000,
          ...redis,
        },
      },
      {
        ...source,
        test: {
          name: "integration",
          include: ["test/integration/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 60_000,
          fileParallelism: false,
          ...redis,
        },
      },
      {
        ...source,
        test: {
          name: "faults",
          include: ["test/faults/**/*.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 60_000,
          fileParallelism: false,
          ...redis,
        },
      },
      {
        ...source,
        test: {
          name: "types",
          include: [],
          typecheck: {
            enabled: true,
            only: true,
            include: ["test/types/**/*.test-d.ts"],
            tsconfig: "tsconfig.check.json",
          },
        },
      },
    ],
  },
});
