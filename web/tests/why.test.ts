import { describe, expect, it } from "vitest";
import { rankCauses, type Cause } from "../src/lib/causes";

const cause = (name: string, blocking: boolean, facts: Record<string, unknown> = {}, change = "", code = name): Cause => ({
  cause: name, blocking, change, reason: { code, text: `waits: ${name}`, facts },
});

describe("why a job waits", () => {
  it("puts first what a reader can change, and last what does not hold it back", () => {
    const ranked = rankCauses([
      cause("share", false),
      cause("shape", true, { to_start: { end: ["j-1", "j-2"] }, after: ["j-1", "j-2"] }, "jobs j-1 and j-2 end"),
      cause("quota", true, { tenant: "t", to_start: { quota: { accelerators: 5 } } }, "raise the quota: shoal quota t --accelerators 5; or end jobs of t"),
      cause("impossible", true, {}, "ask for less"),
    ]);
    expect(ranked.map((one) => one.title)).toEqual(["Fits nowhere", "Quota", "Free devices", "Fair share"]);
    expect(ranked[1]?.steps).toEqual([{ kind: "quota", tenant: "t", limits: { accelerators: 5 } }]);
    expect(ranked[1]?.commands).toEqual(["shoal quota t --accelerators 5"]);
    expect(ranked[2]?.steps).toEqual([{ kind: "end", jobs: ["j-1", "j-2"] }]);
    expect(ranked[0]?.never).toBe(true);
  });
  it("takes nothing from facts of another shape", () => {
    const [one] = rankCauses([cause("quota", true, { tenant: 5, to_start: { quota: { accelerators: "many" }, end: "j-1" } })]);
    expect(one?.steps).toEqual([]);
  });
  it("keeps the server's order among equals", () =>
    expect(rankCauses([cause("zeta", true), cause("alpha", true)]).map((one) => one.title)).toEqual(["Zeta", "Alpha"]));
  it("names causes that it has never heard of", () => expect(rankCauses([cause("new-thing", true)])[0]?.title).toBe("New thing"));
});
