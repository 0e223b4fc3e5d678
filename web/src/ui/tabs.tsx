import { useEffect, useRef } from "preact/hooks";
import { href } from "../lib/router";

interface Given {
  readonly base: readonly string[];
  readonly tabs: readonly (readonly [string, string])[];
  readonly at: string;
  readonly label: string;
}

/** Parts of a page, each with an address of its own. */
export function Tabs({ base, tabs, at, label }: Given) {
  const row = useRef<HTMLElement>(null);
  // On a narrow screen the row is longer than the screen.
  useEffect(() => row.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [at]);
  return (
    <nav class="tabs" aria-label={label} ref={row}>
      {tabs.map(([name, text]) => (
        <a class="tab" href={name ? href(...base, name) : href(...base)} aria-current={name === at ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
