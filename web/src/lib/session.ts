/** Who is signed in. The token itself is in a cookie that no script can read. */
import { signal } from "@preact/signals";
import { send, whenSignedOut, Refused } from "../api/client";

export interface Session {
  readonly signed_in: boolean;
  readonly tenant?: string | null;
  readonly role?: string | null;
  readonly name?: string | null;
  readonly expires_at?: number | null;
  readonly oidc?: boolean;
}

/** null: not known yet. */
export const session = signal<Session | null>(null);
export const isAdmin = (): boolean => Boolean(session.value?.signed_in && !session.value.tenant);
export const mayChange = (): boolean => Boolean(session.value?.signed_in && session.value.role !== "viewer");

const PATH = "/v1/web/session";

export async function loadSession(): Promise<void> {
  const response = await send(PATH);
  session.value = (await response.json()) as Session;
}

export async function signIn(given: { token: string } | { code: string }): Promise<void> {
  const body = JSON.stringify(given);
  await send(PATH, { method: "POST", body, headers: { "content-type": "application/json" } });
  await loadSession();
}

export async function signOut(): Promise<void> {
  await send(PATH, { method: "DELETE" }).catch((error: unknown) => {
    if (!(error instanceof Refused) || error.status !== 401) throw error;
  });
  session.value = { signed_in: false, oidc: session.value?.oidc };
}

whenSignedOut(() => {
  session.value = { signed_in: false, oidc: session.value?.oidc };
});

/** Why the page came up signed out, in words: an old link, or the organisation's sign-in failed. */
export const linkFailed = signal(false);
export const startError = signal("");

/** What a link or a sign-in elsewhere put behind the address' `#`. It is taken out before anything else happens. */
export function takeHash(): { code?: string; error?: string } {
  const found = new URLSearchParams(window.location.hash.slice(1));
  const code = found.get("code");
  const error = found.get("error");
  if (code !== null || error !== null)
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
  return { ...(code ? { code } : {}), ...(error ? { error: error.slice(0, 500) } : {}) };
}

export async function begin(): Promise<void> {
  const { code, error } = takeHash();
  startError.value = error ?? "";
  if (code) {
    try {
      return await signIn({ code });
    } catch {
      // A used or old link: a session that is still good goes on, and otherwise the sign-in says what to do.
      linkFailed.value = true;
    }
  }
  await loadSession();
}
