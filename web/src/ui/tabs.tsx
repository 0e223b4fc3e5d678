import { href } from "../lib/router";

interface Given {
  readonly base: readonly string[];
  readonly tabs: readonly (readonly [string, string])[];
  readonly at: string;
  readonly label: string;
}

/** Parts of a page, each with an address of its own. */
export function Tabs({ base, tabs, at, label }: Given) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(([name, text]) => (
        <a class="tab" href={name ? href(...base, name) : href(...base)} aria-current={name === at ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
