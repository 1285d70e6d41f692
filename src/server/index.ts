/** `sluice/server`: the HTTP API, operator actions and the dashboard. */
export { createServer, type SluiceServer } from "./server.ts";
export type { ServerOptions, TlsOptions, TokenOptions } from "./options.ts";
export type { DescriptorDraw, GrpcOptions, RateLimitDescriptor } from "./decide/envoy/options.ts";
export type { ForwardKey, ForwardOptions, ForwardedRequest, Upstream } from "./forward/options.ts";
export type { Problem, ProblemCode } from "./app/codes.ts";
export type {
  AddedRoute,
  RouteHandler,
  ServerApp,
  ServerLogger,
  ServerReply,
  ServerRequest,
} from "./app/server-app.ts";
