// The repairs of a machine, as a list: what each was to mend, how it stands, who consented, and the command that goes on with it.
// Consent is given in the command line, where the whole plan is shown.

import {badge, facts, h} from "./dom.js";
import {ask, path} from "./api.js";
import {clock} from "./words.js";

const states = {
  planning: ["work", "planning"], "awaiting-consent": ["wait", "waits for a consent"], planned: ["still", "planned"], writing: ["work", "writing"],
  written: ["good", "written"], booting: ["work", "its system boots"], proven: ["good", "proven"], unproven: ["warn", "unproven"], undone: ["still", "undone"],
  failed: ["bad", "failed"], "rolled-back": ["warn", "rolled back"], interrupted: ["bad", "interrupted"],
};

// readRepairs gives the newest repairs of a node; undefined for those who may not read them.
export async function readRepairs(uuid, signal) {
  try {
    return (await ask(path("/salvor/v1/nodes", [uuid, "repairs"]), {signal})).repairs;
  } catch (error) {
    if (error.status === 403) return undefined;
    throw error;
  }
}

// isUnderWay says whether a repair changes by itself.
export function isUnderWay(repair) {
  return ["planning", "awaiting-consent", "writing", "booting"].includes(repair.state);
}

// nextCommand is what its owner would type next; empty where nothing is to be done.
function nextCommand(repair, name) {
  switch (repair.state) {
    case "awaiting-consent": case "planned": case "failed": case "interrupted": return `salvor repair show ${name} ${repair.id}`;
    case "unproven": return `salvor repair confirm ${name} ${repair.id}   or   salvor repair undo ${name} ${repair.id}`;
    default: return "";
  }
}

// repairList shows them, newest first.
export function repairList(repairs, name) {
  if (!repairs) return h("p", null, "Only those who may rescue this machine may read its repairs.");
  if (repairs.length === 0) return h("p", null, "There is none yet. ", h("code", null, `salvor repair ${name} --plan`), " shows what a repair would write.");
  return h("ul", {class: "plain"}, repairs.map((r) => h("li", {"data-repair": r.id, "data-state": r.state},
    h("p", {class: "strip"}, clock(r.requested_at), " ", badge(...(states[r.state] ?? ["still", r.state])), h("span", null, (r.args.findings ?? []).join(", ") || "all findings"),
      isUnderWay(r) && r.step && h("span", null, r.step)),
    facts([["Asked for by", r.requested_by], ["Consent", r.consent && [`${r.consent.by ?? ""} to ${r.consent.consents.join(", ")}, `, clock(r.consent.at)]],
      ["Proven by", r.proven_by], ["Problem", r.problem], ["Next", nextCommand(r, name) && h("code", null, nextCommand(r, name))]]))));
}
