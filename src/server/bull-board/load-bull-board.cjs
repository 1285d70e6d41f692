/**
 * Loads bull-board, an optional package. This file is CommonJS, because bundlers allow a missing package if `require` is
 * inside `try`.
 */
exports.loadBullBoard = () => {
  try {
    return { ...require("@bull-board/api"), ...require("@bull-board/api/bullMQAdapter") };
  } catch (cause) {
    throw new Error(cause.message, { cause });
  }
};

/**
 * The tested version. In this version, routes hide the data of jobs, and change queues only through
 * the methods of the adapter.
 */
exports.SUPPORTED_VERSION = "9.10";
