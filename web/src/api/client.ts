/** The typed client. Its types come from the server's own description, so a use that no longer fits does not compile. */
import createClient, { type Middleware } from "openapi-fetch";
import type { ErrorBody, Problem } from "./types";
import type { paths } from "./schema";

/** What the server refused, in its own words: what, where, and what to do. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly what: string,
    readonly where: string,
    readonly hint: string,
    readonly problems: readonly Problem[] = [],
  ) {
    super(what);
  }
}

export const unreachable = (): Refused =>
  new Refused(0, "unreachable", "the server does not answer", "", "the page tries again by itself");

let onSignedOut: () => void = () => undefined;

/** Called when the server no longer knows who asks. */
export function whenSignedOut(act: () => void): void {
  onSignedOut = act;
}

/** Without it the server refuses a change: a form of another site cannot send it. */
const SAME_SITE = { "X-Shoal-Web": "1" };

const sameSite: Middleware = {
  onRequest({ request }) {
    if (request.method !== "GET") for (const [name, value] of Object.entries(SAME_SITE)) request.headers.set(name, value);
    return request;
  },
};

export const api = createClient<paths>({ baseUrl: "", querySerializer: { array: { style: "form", explode: true } } });
api.use(sameSite);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The answer's data. Throws Refused, and leads to the sign-in where that is what is missing. */
export async function ask<T>(asked: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (answer.response.ok) return answer.data as T;
  throw refusalOf(answer.response.status, answer.error);
}

export function refusalOf(status: number, body: unknown): Refused {
  if (status === 401) onSignedOut();
  const error = (body as { error?: ErrorBody } | null | undefined)?.error;
  if (error && typeof error.what === "string")
    return new Refused(status, error.code, error.what, error.where ?? "", error.hint ?? "", error.problems ?? []);
  if (status >= 502 && status <= 504) return unreachable();
  return new Refused(status, "unknown", `the server answered ${status}`, "", "try again");
}

/** A request that the description does not type: an action of a component's page, a log, the session. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (init.method && init.method !== "GET") for (const [name, value] of Object.entries(SAME_SITE)) headers.set(name, value);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (response.ok) return response;
  throw refusalOf(response.status, await response.json().catch(() => null));
}
