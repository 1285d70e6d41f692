import type Fastify = require("fastify");
import type Swagger = require("@fastify/swagger");

export declare const fastify: typeof Fastify;
export declare const swagger: typeof Swagger.default;
