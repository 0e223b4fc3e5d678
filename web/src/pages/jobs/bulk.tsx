import { plural } from "../../lib/format";
import type { Row } from "../../lib/rows";
import { mayChange } from "../../lib/session";
import { allowed, askStep, type Step } from "./steps";

const STEPS: readonly Step[] = ["cancel", "suspend", "resume"];

/** What can be done to the chosen rows, with the number that each step would reach. */
export function BulkBar({ rows, clear, done }: { rows: readonly Row[]; clear: () => void; done: () => void }) {
  return (
    <div class="bulk" role="toolbar" aria-label="Chosen rows">
      <strong>{plural(rows.length, "row")} chosen</strong>
      {mayChange() &&
        STEPS.map((step) => {
          const count = allowed(step, rows).length;
          return (
            <button type="button" class="button small" disabled={count === 0} onClick={() => askStep(step, rows, () => { clear(); done(); })}>
              {step.charAt(0).toUpperCase() + step.slice(1)}
              {count > 0 && count < rows.length ? ` ${count}` : ""}
            </button>
          );
        })}
      <button type="button" class="button small" onClick={clear}>
        Choose none
      </button>
    </div>
  );
}
