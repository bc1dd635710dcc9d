// The repairs of a machine, as a list: what each mends, its state, who consented, and the command that the owner runs next.
// An owner consents on the command line, which shows the whole plan.

import {badge, facts, h} from "./dom.js";
import {ask, path, Refused} from "./api.js";
import {clock} from "./words.js";

const states = {
  planning: ["work", "planning"], "awaiting-consent": ["wait", "waits for consent"], planned: ["still", "planned"], writing: ["work", "writing"],
  written: ["good", "written"], booting: ["work", "its system boots"], proven: ["good", "proven"], unproven: ["warn", "unproven"], undone: ["still", "undone"],
  failed: ["bad", "failed"], "rolled-back": ["warn", "rolled back"], interrupted: ["bad", "interrupted"],
};

// readRepairs gives the newest repairs of a node, or the refusal of a reader who may not see them or whom the server cannot answer now.
export async function readRepairs(uuid, signal) {
  try {
    return {repairs: (await ask(path("/salvor/v1/nodes", [uuid, "repairs"]), {signal})).repairs};
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 401) throw error;
    return {refusal: error.message};
  }
}

// isUnderWay says whether a repair changes by itself.
export function isUnderWay(repair) {
  return !repair.finished_at;
}

// nextCommands are what the owner runs next, each with what it is for.
function nextCommands(repair, name) {
  switch (repair.state) {
    case "awaiting-consent": return [["to read the plan and to consent", `salvor repair show ${name}`]];
    case "planned": case "failed": return [["to read more", `salvor repair show ${name} ${repair.id}`]];
    case "unproven": return [["if it works", `salvor repair confirm ${name} ${repair.id}`], ["if it does not", `salvor repair undo ${name} ${repair.id} --reboot`]];
    case "interrupted": return [["to put the disks back", `salvor repair undo ${name} ${repair.id}`]];
    case "written": return repair.finished_at ? [["to boot its own system", `salvor node unrescue ${name}`]] : [];
    default: return [];
  }
}

// repairList shows them, newest first.
export function repairList({repairs, refusal}, name) {
  if (refusal) return h("p", null, refusal);
  if (repairs.length === 0) return h("p", null, "There is none yet. ", h("code", null, `salvor repair ${name} --plan`), " shows what a repair would write.");
  return h("ul", {class: "plain"}, repairs.map((r) => h("li", {"data-repair": r.id, "data-state": r.state},
    h("p", {class: "strip"}, clock(r.requested_at), " ", badge(...(states[r.state] ?? ["still", r.state])), h("span", null, (r.args?.findings ?? []).join(", ") || "all findings"),
      isUnderWay(r) && r.step && h("span", null, r.step)),
    facts([["Requested by", r.requested_by], ["Consent", r.consent && [`${r.consent.by ?? ""} to ${(r.consent.consents ?? []).join(", ") || "nothing"}, `, clock(r.consent.at)]],
      ["Digest of the plan", r.digest && h("code", null, r.digest)], ["May lose", r.losses?.length ? h("ul", {class: "plain"}, r.losses.map((l) => h("li", null, h("code", null, l.finding), `: ${l.text}`))) : undefined],
      ["Waits for consent until", r.state === "awaiting-consent" && r.consent_until ? clock(r.consent_until) : undefined], ["Proven by", r.proven_by], ["Problem", r.problem],
      ...nextCommands(r, name).map(([what, command]) => [`Next, ${what}`, h("code", null, command)])]))));
}
