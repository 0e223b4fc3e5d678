/** Data from the server that keeps itself fresh: a hook that loads, tells its state, and loads again on news. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refused } from "../api/client";
import { news, type Topic } from "./news";

export interface Loaded<T> {
  readonly data: T | null;
  readonly error: Refused | null;
  readonly loading: boolean;
  readonly reload: () => void;
}

export function asRefused(reason: unknown): Refused {
  return reason instanceof Refused ? reason : new Refused(0, "defect", String(reason), "", "reload the page");
}

/** Loads for `key` and again on news of the topics. A failed reload keeps the data that is shown. News that come while
 * an answer is awaited lead to one more load after it, so a slow server is never asked twice at once. `everyMs` is for
 * what changes without an event. */
export function useLoad<T>(
  key: string, load: (signal: AbortSignal) => Promise<T>, topics: readonly Topic[], everyMs = 0,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; data: T | null; error: Refused | null }>({
    key: "\u0000", data: null, error: null,
  });
  const seen = topics.map((topic) => news[topic].value).join();
  const loader = useRef(load);
  loader.current = load;
  const flight = useRef({ key: "\u0000", abort: new AbortController(), busy: false, again: false });

  const start = useCallback((of: string) => {
    const mine = { key: of, abort: new AbortController(), busy: true, again: false };
    flight.current.abort.abort();
    flight.current = mine;
    const settle = (change: (before: T | null) => { data: T | null; error: Refused | null }): void => {
      if (mine.abort.signal.aborted) return;
      mine.busy = false;
      setState((before) => ({ key: of, ...change(before.key === of ? before.data : null) }));
      if (mine.again) start(of);
    };
    loader.current(mine.abort.signal).then(
      (data) => settle(() => ({ data, error: null })),
      (reason: unknown) => settle((data) => ({ data, error: asRefused(reason) })),
    );
  }, []);

  useEffect(() => {
    if (flight.current.key === key && flight.current.busy) flight.current.again = true;
    else start(key);
  }, [key, seen]);
  useEffect(() => {
    if (everyMs <= 0) return undefined;
    const timer = setInterval(() => {
      if (!flight.current.busy && document.visibilityState === "visible") start(flight.current.key);
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  useEffect(() => () => flight.current.abort.abort(), []);

  const current = state.key === key;
  const reload = useCallback(() => start(flight.current.key), []);
  return { data: current ? state.data : null, error: current ? state.error : null, loading: !current, reload };
}
