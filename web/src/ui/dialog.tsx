/** Dialogs: the browser's own element holds the focus, closes on Escape, and is known to screen readers. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { asRefused } from "../live/load";
import type { Refused } from "../api/client";
import { Failure } from "./parts";

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => {
        if (event.target === element.current) close();
      }}
    >
      <div class="dialog-body">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

export interface Question {
  readonly title: string;
  /** What will happen, before it does. */
  readonly text: ComponentChildren;
  readonly act: string;
  readonly destructive?: boolean;
  /** A value that is asked for, with what it starts from. */
  readonly field?: { readonly label: string; readonly value: string; readonly kind?: "number" | "text" };
  readonly run: (value: string) => Promise<void>;
}

const asked = signal<Question | null>(null);

/** Puts a question to the reader; nothing happens unless the answer is yes. */
export function askFirst(question: Question): void {
  asked.value = question;
}

export function Questions() {
  const question = asked.value;
  return question ? <Asked key={question} question={question} /> : null;
}

function Asked({ question }: { question: Question }) {
  const [value, setValue] = useState(question.field?.value ?? "");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refused | null>(null);
  const close = (): void => {
    asked.value = null;
  };
  const run = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await question.run(value);
      close();
    } catch (reason) {
      setError(asRefused(reason));
      setBusy(false);
    }
  };
  return (
    <Dialog title={question.title} close={close}>
      <form onSubmit={run}>
        <div class="dialog-text">{question.text}</div>
        {question.field && (
          <label class="field">
            <span>{question.field.label}</span>
            {question.field.kind === "number" ? (
              <input type="number" min={0} required value={value} onInput={(event) => setValue(event.currentTarget.value)} />
            ) : (
              <input type="text" value={value} onInput={(event) => setValue(event.currentTarget.value)} />
            )}
          </label>
        )}
        {error && <Failure error={error} />}
        <div class="dialog-actions">
          <button type="button" class="button" onClick={close}>
            Back
          </button>
          <button type="submit" class={`button ${question.destructive ? "danger" : "primary"}`} disabled={busy}>
            {question.act}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
