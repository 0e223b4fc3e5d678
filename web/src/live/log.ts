/** A rank's log as it grows: its last lines at first, then each piece by long poll. */
import { useEffect, useRef, useState } from "preact/hooks";
import { send, type Refused } from "../api/client";
import { Screen, type Line } from "../lib/ansi";
import { asRefused } from "./load";

export interface LogAsked {
  readonly job: string;
  readonly rank: number;
  /** 0: the newest attempt. */
  readonly attempt: number;
  readonly tail: number;
}

export interface LogState {
  readonly lines: readonly Line[];
  /** Grows with each change of `lines`, which is the same array. */
  readonly version: number;
  readonly ended: boolean;
  readonly started: boolean;
  readonly error: Refused | null;
  /** Whether earlier output exists that was not loaded. */
  readonly cut: boolean;
}

const WAIT_S = 25;
const RETRY_MS = 2000;
const EMPTY: LogState = { lines: [], version: 0, ended: false, started: false, error: null, cut: false };

export function useLog(asked: LogAsked, keep = 100_000): LogState {
  const [state, setState] = useState(EMPTY);
  const key = `${asked.job} ${asked.rank} ${asked.attempt} ${asked.tail}`;
  const version = useRef(0);
  useEffect(() => {
    const abort = new AbortController();
    setState(EMPTY);
    void read(asked, keep, abort.signal, (next) => setState({ ...next, version: ++version.current }));
    return () => abort.abort();
  }, [key]);
  return state;
}

async function read(
  asked: LogAsked, keep: number, stop: AbortSignal, tell: (state: Omit<LogState, "version">) => void,
): Promise<void> {
  const screen = new Screen(keep);
  let decoder = new TextDecoder();
  let offset: number | null = null;
  let attempt = asked.attempt;
  let cut = false;
  const say = (ended: boolean, error: Refused | null = null): void =>
    tell({ lines: screen.lines, ended, started: attempt > 0 || offset !== null, error, cut: cut || screen.dropped > 0 });
  while (!stop.aborted) {
    const query = new URLSearchParams({ rank: String(asked.rank), limit: String(1 << 20) });
    if (attempt > 0) query.set("attempt", String(attempt));
    if (offset === null) query.set("tail", String(asked.tail));
    else {
      query.set("offset", String(offset));
      query.set("wait_s", String(WAIT_S));
    }
    try {
      const answer: Response = await send(`/v1/jobs/${encodeURIComponent(asked.job)}/logs?${query.toString()}`, { signal: stop });
      const data = new Uint8Array(await answer.arrayBuffer());
      const header = (name: string): number => Number(answer.headers.get(`X-Shoal-${name}`) ?? 0);
      const of = header("Attempt");
      if (asked.attempt === 0 && attempt > 0 && of > attempt) {
        screen.feed(`\n\u001b[0;2m── attempt ${of} ──\u001b[0m\n`);
        decoder = new TextDecoder();
      }
      if (offset === null) cut = header("Offset") > 0;
      else if (header("Offset") > offset) screen.feed("\n\u001b[0;2m── a part of the log was removed ──\u001b[0m\n");
      attempt = asked.attempt || 0;
      offset = header("Next-Offset");
      screen.feed(decoder.decode(data, { stream: true }));
      const ended = answer.headers.get("X-Shoal-Ended") ?? "no";
      const over = data.length === 0 && (ended === "job" || (ended === "attempt" && asked.attempt > 0));
      say(over);
      if (over) return;
      if (asked.attempt === 0) attempt = of;
      if (data.length === 0 && ended === "attempt" && asked.attempt === 0) {
        // The next attempt's log begins anew.
        attempt = 0;
        const next = await nextAttempt(asked, of, stop);
        if (next > of) offset = 0;
      }
    } catch (reason) {
      if (stop.aborted) return;
      const error = asRefused(reason);
      say(false, error);
      if (error.status >= 400 && error.status !== 429) return;
      await pause(RETRY_MS, stop);
    }
  }
}

/** The number of the newest attempt once it is past `present`, or `present` after a while. */
async function nextAttempt(asked: LogAsked, present: number, stop: AbortSignal): Promise<number> {
  await pause(RETRY_MS, stop);
  const query = new URLSearchParams({ rank: String(asked.rank), limit: "1" });
  const answer = await send(`/v1/jobs/${encodeURIComponent(asked.job)}/logs?${query.toString()}`, { signal: stop });
  return Number(answer.headers.get("X-Shoal-Attempt") ?? present);
}

const pause = (ms: number, stop: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
