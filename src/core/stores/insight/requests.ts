/** Recognizes repeated requests on all servers. */
export interface RequestNotes {
  /** Notes a request, unless another one has its name. A repetition extends the time that it is kept. */
  noteRequest(request: NotedRequest, keptMs: number): Promise<RequestNoted>;
  /** Frees the name of a request that had no effect. */
  forgetRequest(request: NotedRequest): Promise<void>;
}

/** `"same"` is a repetition. `"other"` means that the name is taken. */
export type RequestNoted = "first" | "same" | "other";

export interface NotedRequest {
  readonly queue: string;
  /** Unique within the queue. */
  readonly name: string;
  /** The digest of its content. */
  readonly asked: string;
}
