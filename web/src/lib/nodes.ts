/** What machines have, and what is free of it. */
import type { Device, Node } from "../api/types";

export interface TypeCount {
  readonly type: string;
  readonly free: number;
  readonly all: number;
}

export function countDevices(nodes: readonly Node[]): TypeCount[] {
  const found = new Map<string, { free: number; all: number }>();
  for (const node of nodes)
    for (const device of node.devices ?? []) {
      const one = found.get(device.type) ?? { free: 0, all: 0 };
      one.all += 1;
      if (isFree(device) && node.schedulable) one.free += 1;
      found.set(device.type, one);
    }
  return [...found].map(([type, counts]) => ({ type, ...counts }));
}

export const isFree = (device: Device): boolean => device.free !== false && !device.job_id && !(device.best_effort_jobs ?? []).length;

export const isDrained = (node: Node): boolean => !node.schedulable;
