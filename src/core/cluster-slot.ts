/** How many slots a Redis cluster has. */
export const SLOTS = 16_384;
const CRC16_XMODEM = 0x1021;

/** What each byte comes to, reckoned once: it is asked for with each call of a bucket whose keys are spread. */
const REMAINDERS = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) {
    crc = (crc << 1) ^ ((crc & 0x8000) === 0 ? 0 : CRC16_XMODEM);
  }
  return crc;
});

/** The slot of a Redis cluster that a hash tag stands for, by the cluster specification's CRC16. */
export function slotOfTag(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc = ((crc << 8) & 0xffff) ^ REMAINDERS[(crc >> 8) ^ byte]!;
  }
  return crc % SLOTS;
}
