import { useState } from "preact/hooks";
import type { Refused } from "../api/client";
import { linkFailed, session, signIn, startError } from "../lib/session";
import { asRefused } from "../live/load";
import { Failure } from "../ui/parts";
import { Fish } from "../ui/shell";

export function SignIn() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refused | null>(null);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn({ token: token.trim() });
    } catch (reason) {
      setError(asRefused(reason));
    }
    setBusy(false);
  };
  const next = encodeURIComponent(window.location.pathname + window.location.search);
  return (
    <main class="sign">
      <div class="sign-card">
        <h1>
          <Fish /> Shoal
        </h1>
        {linkFailed.value && <p role="alert">This link was used before, or is too old. <code>shoal web</code> makes a new one.</p>}
        {startError.value && <p role="alert">{startError.value}</p>}
        {session.value?.oidc && (
          <>
            <a class="button primary" href={`/v1/web/oidc/start?next=${next}`} target="_self">
              Sign in with your organisation
            </a>
            <p class="muted">Or with a token:</p>
          </>
        )}
        <form onSubmit={submit}>
          <label class="field">
            <span>Token</span>
            <input type="password" autocomplete="current-password" required autofocus value={token} onInput={(event) => setToken(event.currentTarget.value)} />
          </label>
          {error && <Failure error={error} />}
          <button type="submit" class={`button ${session.value?.oidc ? "" : "primary"}`} disabled={busy}>
            Sign in
          </button>
        </form>
        <p class="muted">
          An admin makes tokens with <code>shoal tenant token</code>. On the server's machine, <code>shoal web</code> opens this page signed in.
        </p>
      </div>
    </main>
  );
}
