import { useEffect, useState } from "preact/hooks";

const QUERY = window.matchMedia("(max-width: 760px)");

/** Whether the window is as narrow as a phone's. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(QUERY.matches);
  useEffect(() => {
    const change = (): void => setNarrow(QUERY.matches);
    QUERY.addEventListener("change", change);
    return () => QUERY.removeEventListener("change", change);
  }, []);
  return narrow;
}
