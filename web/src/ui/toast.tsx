/** Short messages about what was just done, read out by screen readers. */
import { signal } from "@preact/signals";

interface Said {
  readonly id: number;
  readonly text: string;
  readonly tone: "good" | "bad";
}

const said = signal<readonly Said[]>([]);
let last = 0;

export function say(text: string, tone: "good" | "bad" = "good"): void {
  const id = ++last;
  said.value = [...said.value.slice(-3), { id, text, tone }];
  setTimeout(() => {
    said.value = said.value.filter((one) => one.id !== id);
  }, tone === "bad" ? 9000 : 4000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {said.value.map((one) => (
        <div key={one.id} class={`toast toast-${one.tone}`}>
          {one.text}
        </div>
      ))}
    </div>
  );
}
