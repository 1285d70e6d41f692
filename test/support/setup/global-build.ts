import type {} from "vitest";
import type { TestProject } from "vitest/node";
import { buildPackage } from "./built-package.ts";

declare module "vitest" {
  interface ProvidedContext {
    builtRoot: string;
  }
}

/**
 * Builds the package for the test projects, because child processes that run it start in half the time that the sources
 * take. The first project builds it, and the others use the same build.
 */
export default async function globalBuild(
  project: TestProject,
): Promise<(() => Promise<void>) | undefined> {
  if (project.getProvidedContext().builtRoot !== undefined) return undefined;
  const built = await buildPackage();
  project.vitest.provide("builtRoot", built.root);
  return () => built.remove();
}
