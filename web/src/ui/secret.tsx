import { Copy } from "./parts";

/** A secret that the server tells once. */
export function Secret({ text, what, done }: { text: string; what: string; done: () => void }) {
  return (
    <p class="row-gap" role="status">
      {what}, shown this once: <code class="secret">{text}</code>
      <Copy text={text} label="Copy the token" />
      <button type="button" class="button small" onClick={done}>I have it</button>
    </p>
  );
}
