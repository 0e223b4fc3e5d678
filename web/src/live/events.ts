/** Lists of events. The API's answer is a list or a stream by what is asked; here it is always the list. */
import { api, ask } from "../api/client";
import { position } from "./news";
import type { components } from "../api/schema";

type EventList = components["schemas"]["EventList"];

export interface Of {
  readonly job?: string;
  readonly service?: string;
}

/** The end of the log, which the stream tells. */
function newest(signal: AbortSignal): Promise<number> {
  return new Promise((resolve) => {
    const stop = position.subscribe((known) => {
      if (known === null) return;
      resolve(known);
      queueMicrotask(() => stop());
    });
    signal.addEventListener("abort", () => stop());
  });
}

/** The events of a job or a service from its first, or the last `limit` of all. Oldest first. */
export async function readEvents(of: Of, limit: number, signal: AbortSignal): Promise<EventList["events"]> {
  const query = { limit };
  const list = async (asked: Promise<{ data?: unknown; error?: unknown; response: Response }>): Promise<EventList> =>
    (await ask(asked)) as EventList;
  if (of.job) return (await list(api.GET("/v1/jobs/{ref}/events", { params: { path: { ref: of.job }, query }, signal }))).events;
  if (of.service)
    return (await list(api.GET("/v1/services/{ref}/events", { params: { path: { ref: of.service }, query }, signal }))).events;
  const after = Math.max(0, (await newest(signal)) - limit);
  return (await list(api.GET("/v1/events", { params: { query: { after, limit } }, signal }))).events;
}
