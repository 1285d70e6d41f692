/**
 * Loads BullMQ on first use. This is a CommonJS file, so that Node loads BullMQ synchronously and a bundler sees what
 * to include.
 */
exports.loadBullmq = () => require("bullmq");
