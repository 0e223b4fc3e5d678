/** What has changed on the server, by topic: a number that grows. Pages load again what they show. */
import { signal, type Signal } from "@preact/signals";

export const TOPICS = ["jobs", "nodes", "tenants", "services", "pages", "events", "status"] as const;
export type Topic = (typeof TOPICS)[number];

export const news = Object.fromEntries(TOPICS.map((topic) => [topic, signal(0)])) as Record<Topic, Signal<number>>;

export function announce(...topics: readonly Topic[]): void {
  for (const topic of topics) news[topic].value += 1;
}

/** Unix seconds since when the page is not fresh; null: it is. */
export const staleSince = signal<number | null>(null);

/** The newest event that is known of; null until the stream has begun. */
export const position = signal<number | null>(null);

/** The present, in Unix seconds, once a second: ages are drawn by it. */
export const now = signal(Date.now() / 1000);
