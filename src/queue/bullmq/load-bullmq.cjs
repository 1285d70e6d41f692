/** Loads BullMQ when it is first used. In CommonJS, so that Node does so at once and a bundler sees what to include. */
exports.loadBullmq = () => require("bullmq");
