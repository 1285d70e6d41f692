/** Fastify. The build makes one file of it and of all that it needs, so that users install no package of it. */
exports.fastify = require("fastify");
exports.swagger = require("@fastify/swagger");
