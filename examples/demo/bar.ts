const PARTS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/** A bar from the left, eight steps to a character. */
export function drawBar(share: number, width: number): string {
  const steps = Math.round(share * width * 8);
  return "█".repeat(Math.floor(steps / 8)) + PARTS[steps % 8]!;
}
