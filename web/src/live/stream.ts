/** Keeps the page fresh by the server's stream of changes. One tab of a browser holds it and tells the others: a browser
 * opens six connections to a server, and each tab needs some to load data. */
import { loadSession } from "../lib/session";
import { announce, now, position, staleSince, TOPICS, type Topic } from "./news";
import { topicsOf, type Batch, type Word } from "./topics";

const PATH = "/v1/web/stream";
/** Pages are drawn at most so often, however much happens. */
const PACE_MS = 1000;
/** What changes without an event (figures over time, free memory) is asked for so often. */
const SLOW_MS = 15_000;
/** A stream that ended for good is tried again so often. */
const RETRY_MS = 3000;
const SLOW: readonly Topic[] = ["status", "pages", "nodes", "tenants", "services"];

const waiting = new Set<Topic>();
let timer: ReturnType<typeof setTimeout> | null = null;
let cutTimer: ReturnType<typeof setTimeout> | null = null;

function hear(topics: Iterable<Topic>): void {
  for (const topic of topics) waiting.add(topic);
  timer ??= setTimeout(flush, PACE_MS);
}

/** A hidden page asks for nothing; what it missed is asked for when it is seen again. */
function flush(): void {
  timer = null;
  if (document.visibilityState === "hidden" || waiting.size === 0) return;
  const topics = [...waiting];
  waiting.clear();
  announce(...topics);
}

function take(word: Word): void {
  switch (word.say) {
    case "open":
      if (cutTimer) clearTimeout(cutTimer);
      cutTimer = null;
      position.value = word.seq;
      if (staleSince.value !== null) hear(TOPICS);
      staleSince.value = null;
      break;
    case "changes":
      position.value = word.batch.seq;
      hear(topicsOf(Object.keys(word.batch.kinds)));
      break;
    case "reset":
      hear(TOPICS);
      break;
    case "cut":
      // A stream that comes back at once is no reason to worry a reader.
      cutTimer ??= setTimeout(() => {
        staleSince.value ??= Date.now() / 1000;
      }, 1500);
      break;
    case "over":
      void loadSession().catch(() => undefined);
      break;
  }
}

/** Reads the stream and passes on each word, until stopped. */
function read(tell: (word: Word) => void): () => void {
  let source: EventSource | null = null;
  let retry: ReturnType<typeof setTimeout> | null = null;
  const open = (): void => {
    const stream = new EventSource(PATH);
    source = stream;
    stream.addEventListener("hello", (event) => tell({ say: "open", seq: (JSON.parse(event.data) as { seq: number }).seq }));
    stream.addEventListener("changes", (event) => tell({ say: "changes", batch: JSON.parse(event.data) as Batch }));
    stream.addEventListener("reset", () => tell({ say: "reset" }));
    stream.addEventListener("bye", () => {
      stream.close();
      tell({ say: "over" });
    });
    stream.onerror = () => {
      tell({ say: "cut" });
      if (stream.readyState !== EventSource.CLOSED) return;
      tell({ say: "over" });
      retry = setTimeout(open, RETRY_MS);
    };
  };
  open();
  return () => {
    source?.close();
    if (retry) clearTimeout(retry);
  };
}

/** Shares one stream among the tabs: who holds the lock reads, and when that tab is closed another goes on. */
function share(tell: (word: Word) => void): () => void {
  if (!("locks" in navigator) || !("BroadcastChannel" in window)) return read(tell);
  const channel = new BroadcastChannel("shoal-stream");
  const ended = new AbortController();
  let reads = false;
  let connected = false;
  channel.onmessage = ({ data: word }: MessageEvent<Word>) => {
    if (word.say !== "ask") tell(word);
    else if (reads && connected && position.value !== null) channel.postMessage({ say: "open", seq: position.value } satisfies Word);
  };
  channel.postMessage({ say: "ask" } satisfies Word);
  navigator.locks
    .request("shoal-stream", { signal: ended.signal }, async () => {
      reads = true;
      const stop = read((word) => {
        connected = word.say !== "cut" && word.say !== "over";
        channel.postMessage(word);
        tell(word);
      });
      await new Promise<void>((resolve) => ended.signal.addEventListener("abort", () => resolve()));
      stop();
    })
    .catch(() => undefined);
  return () => {
    ended.abort();
    channel.close();
  };
}

/** Follows the server until the returned function is called. */
export function follow(): () => void {
  const clock = setInterval(() => {
    now.value = Date.now() / 1000;
  }, 1000);
  const slow = setInterval(() => hear(SLOW), SLOW_MS);
  const seen = (): void => {
    if (document.visibilityState === "visible") flush();
  };
  document.addEventListener("visibilitychange", seen);
  const stop = share(take);
  return () => {
    stop();
    clearInterval(clock);
    clearInterval(slow);
    document.removeEventListener("visibilitychange", seen);
    staleSince.value = null;
  };
}
