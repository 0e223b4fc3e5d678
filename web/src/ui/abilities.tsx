/** What a machine can do, what it cannot, and what that costs. */
import type { Capability } from "../lib/status";
import { sentence, words } from "../lib/format";
import { Card, Prose } from "./parts";

export function Abilities({ title, all }: { title: string; all: readonly Capability[] }) {
  return (
    <Card title={title}>
      <div class="table-scroll" tabIndex={0} role="group" aria-label={title}>
        <table class="grid facing">
          <thead><tr><th scope="col">What</th><th scope="col">Here</th><th scope="col">How, or why not</th></tr></thead>
          <tbody>
            {all.map((one) => (
              <tr>
                <th scope="row">{words(one.name)}</th>
                <td><span class={`chip ${one.available ? "good" : ""}`}>{one.available ? "yes" : "no"}</span></td>
                <td class="wide"><Prose text={sentence(one.detail)} />{!one.available && one.consequence && <p class="muted"><Prose text={sentence(one.consequence)} /></p>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
