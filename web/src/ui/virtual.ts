/** TanStack's virtualizer for Preact: of a long list only what can be seen is in the document. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useReducer, useState } from "preact/hooks";

interface Given {
  readonly count: number;
  readonly scroller: () => HTMLElement | null;
  readonly rowHeight: number;
  readonly keyOf?: (index: number) => string | number;
}

export function useVirtual({ count, scroller, rowHeight, keyOf }: Given): Virtualizer<HTMLElement, HTMLElement> {
  const [, draw] = useReducer((turn: number) => turn + 1, 0);
  const options = {
    count,
    getScrollElement: scroller,
    estimateSize: () => rowHeight,
    overscan: 12,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => draw(0),
    ...(keyOf ? { getItemKey: keyOf } : {}),
  };
  const [virtual] = useState(() => new Virtualizer<HTMLElement, HTMLElement>(options));
  virtual.setOptions(options);
  useEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => virtual._willUpdate());
  return virtual;
}
