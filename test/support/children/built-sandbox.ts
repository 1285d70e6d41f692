import { inject, onTestFinished, vi } from "vitest";

const LOADER = new URL("built-sandbox-loader.mjs", import.meta.url).href;

/**
 * Makes the processes of handlers in files run the built package until the test has finished. The sources take several
 * times as long to load.
 */
export function useBuiltSandbox(): void {
  vi.stubEnv("NODE_OPTIONS", `--import ${LOADER}`);
  vi.stubEnv("SLUICE_BUILT_ROOT", inject("builtRoot"));
  onTestFinished(() => void vi.unstubAllEnvs());
}
