export function loadBullmq(): typeof import("bullmq");
