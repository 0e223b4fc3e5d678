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

export interface Field {
  readonly label: string;
  readonly value: string;
  readonly kind?: "number" | "text";
  /** What may be chosen; any text without it. */
  readonly options?: readonly string[];
}

export interface Question {
  readonly title: string;
  /** What will happen, before it does. */
  readonly text: ComponentChildren;
  readonly act: string;
  readonly destructive?: boolean;
  /** Values that are asked for, with what they start from. */
  readonly field?: Field;
  readonly second?: Field;
  readonly run: (value: string, second: string) => Promise<void>;
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
  const [second, setSecond] = useState(question.second?.value ?? "");
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
      await question.run(value, second);
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
        {question.field && <Input field={question.field} value={value} set={setValue} />}
        {question.second && <Input field={question.second} value={second} set={setSecond} />}
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

function Input({ field, value, set }: { field: Field; value: string; set: (value: string) => void }) {
  return (
    <label class="field">
      <span>{field.label}</span>
      {field.options ? (
        <select value={value} onChange={(event) => set(event.currentTarget.value)}>
          {field.options.map((one) => <option value={one}>{one}</option>)}
        </select>
      ) : field.kind === "number" ? (
        <input type="number" min={0} required value={value} onInput={(event) => set(event.currentTarget.value)} />
      ) : (
        <input type="text" value={value} onInput={(event) => set(event.currentTarget.value)} />
      )}
    </label>
  );
}
