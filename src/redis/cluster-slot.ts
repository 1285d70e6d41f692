const SLOTS = 16_384;
const CRC16_XMODEM = 0x1021;

/** The slot of a Redis cluster that a hash tag stands for, by the cluster specification's CRC16. */
export function slotOfTag(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) {
      crc = ((crc << 1) ^ ((crc & 0x8000) === 0 ? 0 : CRC16_XMODEM)) & 0xffff;
    }
  }
  return crc % SLOTS;
}
