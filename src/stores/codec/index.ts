export type { Codec, Encoded, NewPayload, PayloadInfo } from "../../core/codec.ts";
export type { PayloadKind } from "../../core/errors.ts";

export { compression, type CompressionOptions } from "./compression.ts";

export { encryption, type EncryptionKey, type EncryptionOptions } from "./encryption.ts";

export { fileStore, type FileStoreOptions } from "./file-store.ts";

export { offload, type OffloadOptions, type PayloadStore } from "./offload.ts";
