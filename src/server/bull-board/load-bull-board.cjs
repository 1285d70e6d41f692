/**
 * Loads bull-board, an optional package. In CommonJS, because bundlers accept that a package is missing if `require` asks for it
 * within `try`.
 */
exports.loadBullBoard = () => {
  try {
    return { ...require("@bull-board/api"), ...require("@bull-board/api/bullMQAdapter") };
  } catch (cause) {
    throw new Error(cause.message, { cause });
  }
};

/** The version whose routes are known to hide the data of jobs, and to change queues only by the methods of the adapter. */
exports.SUPPORTED_VERSION = "9.10";
