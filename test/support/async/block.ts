/** Keeps this process from doing anything else, as a garbage collection or a cold start does. */
export function block(ms: number): void {
  const startMs = performance.now();
  while (performance.now() - startMs < ms);
}
