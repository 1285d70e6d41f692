/** Remembers requests, so that each HTTP server recognizes a repeated request. */
export interface RequestNotes {
  /**
   * Records a request, unless another request has the same name. A repetition extends the time for which the record is
   * kept, `keptMs`.
   */
  noteRequest(request: NotedRequest, keptMs: number): Promise<RequestNoted>;
  /** Removes the record of a request that had no effect, so that its name is free again. */
  forgetRequest(request: NotedRequest): Promise<void>;
}

/**
 * The result of recording a request. `"same"` means that the request is a repetition. `"other"` means that a different
 * request has this name.
 */
export type RequestNoted = "first" | "same" | "other";

export interface NotedRequest {
  readonly queue: string;
  /** The name of the request, unique within the queue. */
  readonly name: string;
  /** The digest of the request's content. */
  readonly asked: string;
}
