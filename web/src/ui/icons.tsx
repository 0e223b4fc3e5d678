/** Signs of 16 by 16, drawn with the text's colour. They repeat what a label says, and are hidden from readers. */
const PATHS = {
  jobs: "M2 4h12M2 8h12M2 12h8",
  services: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01",
  nodes: "M4 4h8v8H4zM6.5 1.5v2.5M9.5 1.5v2.5M6.5 12v2.5M9.5 12v2.5M1.5 6.5h2.5M1.5 9.5h2.5M12 6.5h2.5M12 9.5h2.5",
  tenants: "M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM1.5 13.500c0-2.500 1.800-4 4-4s4 1.500 4 4M10.500 7a2 2 0 0 0 0-4M12 9.800c1.500.500 2.500 1.800 2.500 3.700",
  events: "M8 2v6l4 2M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0z",
  server: "M2 3h12v7H2zM5.500 13.500h5M8 10v3.500",
  part: "M8 1.800 14 5v6l-6 3.200L2 11V5zM2 5l6 3.200L14 5M8 8.200v6",
  planes: "M8 2 14 5 8 8 2 5zM2 8l6 3 6-3M2 11l6 3 6-3",
  plus: "M8 3v10M3 8h10",
  search: "M11.500 7a4.500 4.500 0 1 1-9 0 4.500 4.500 0 0 1 9 0zM10.300 10.300 14 14",
  menu: "M2 4h12M2 8h12M2 12h12",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.500 9.500A6 6 0 0 1 6.500 2.500 6 6 0 1 0 13.500 9.500z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  download: "M8 2v8.500M4.500 7 8 10.500 11.500 7M2.500 13.500h11",
  out: "M6 2.500H2.500v11H6M10 5l3.500 3L10 11M13.500 8H6",
  up: "M8 13V3M4 7l4-4 4 4",
  end: "M8 3v10M4 9l4 4 4-4",
  wrap: "M2 4h12M2 8h9.500a2.500 2.500 0 0 1 0 5H8.500M10.500 11l-2 2 2 2M2 12h3",
  guaranteed: "M8 1.800l5 1.900v4.100c0 3.200-2 5.400-5 6.400-3-1-5-3.200-5-6.400V3.700z",
  check: "M3 8.500 6.500 12 13 4.500",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
