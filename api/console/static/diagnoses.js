// A machine's diagnoses: the newest report with the stages of its boot drawn, the findings with what shows them, and the question for a new one.
// All texts of a report come from disks of strangers. They go in as text.

import {badge, card, empty, facts, fill, h, heading, link, mark, s, say} from "./dom.js";
import {ask, path} from "./api.js";
import {confirm} from "./dialog.js";
import {isUnderWay, readRepairs, repairList} from "./repairs.js";
import {clock, count, moment} from "./words.js";

const stages = ["power", "firmware", "loader", "kernel", "initramfs", "root", "init", "target", "network", "sshd", "login"];
const severities = {
  "blocks-boot": ["bad", "keeps it from booting"], "blocks-access": ["bad", "keeps people from logging in"], degrades: ["warn", "degrades it"], info: ["still", "for information"],
};
const outcomes = {"cause-found": ["bad", "The cause is found"], "nothing-found": ["wait", "Nothing known was found that hinders it"], works: ["good", "It works"]};
const proofs = {"login-prompt": "Proven by a login prompt", "sshd-banner": "Proven by its sshd", person: "Confirmed by a person"};
const states = {running: ["work", "under way"], finished: ["good", "finished"], failed: ["bad", "failed"]};
const consents = {settings: "settings outside of the disks", files: "files that can be restored one by one", boot: "boot loaders, partition tables and other blocks", data: "it may lose data"};

export async function diagnoses(view) {
  const {id, query, signal} = view;
  const node = await ask(path("/v1/nodes", [id]), {signal});
  const name = node.name || node.uuid;
  const base = path("/salvor/v1/nodes", [node.uuid, "diagnoses"]);
  const body = h("div", {class: "stack"});
  const list = h("div");
  const repairsBox = h("div");
  let lastRepairs = "";
  let chosen = query.id;
  let last = "";
  let next;
  signal.addEventListener("abort", () => clearTimeout(next));
  let look;

  const send = async (args) => {
    await ask(base, {method: "POST", body: args});
    chosen = undefined;
    say(`A diagnosis of ${name} is asked for`);
    await look();
  };
  const buttons = h("div", {class: "toolbar", role: "group", "aria-label": "Ask for a diagnosis"},
    h("button", {type: "button", class: "primary", "data-key": "diagnose", on: {click: () => confirm({
      title: `Diagnose ${name}?`, button: "Diagnose",
      text: ["A machine that is on stays on, and only its controller and the records are read. One that is off boots a rescue system, which reads its disks and changes nothing on them; then it is off again."],
      act: () => send({}),
    })}}, "Diagnose …"),
    h("button", {type: "button", class: "danger", "data-key": "diagnose-reboot", on: {click: () => confirm({
      title: `Restart ${name} to diagnose it?`, button: "Restart and diagnose", danger: true,
      text: ["The machine is switched off at once, and what it has not written is lost. It boots a rescue system, which reads its disks and changes nothing on them. Then its own system boots again."],
      act: () => send({reboot: true}),
    })}}, "Diagnose with a restart …"));

  async function read() {
    const all = (await ask(base, {signal})).diagnoses;
    const shown = all.find((d) => d.id === chosen) ?? all[0];
    const kept = await readRepairs(node.uuid, signal);
    const one = shown && await ask(`${base}/${encodeURIComponent(shown.id)}`, {signal});
    // The end of a diagnosis is no event of its own, nor is a step of a repair.
    clearTimeout(next);
    if ((all.some((d) => d.state === "running") || kept.repairs?.some(isUnderWay)) && !signal.aborted) next = setTimeout(look, 1000);
    if (JSON.stringify(kept) !== lastRepairs) {
      lastRepairs = JSON.stringify(kept);
      fill(repairsBox, repairList(kept, name));
    }
    const text = JSON.stringify([all, one]);
    if (text === last) return;
    last = text;
    fill(list, all.length === 0 ? h("p", null, "There is none yet.") : h("ul", {class: "plain"}, all.map((d) => h("li", null,
      h("button", {type: "button", class: "quiet small", "data-key": d.id, "aria-pressed": String(d.id === one.id), on: {click: () => { chosen = d.id; look(); }}}, clock(d.requested_at)),
      " ", badge(...(states[d.state] ?? ["still", d.state])), " ", d.state !== "running" && d.finding))));
    fill(body, one ? report(one) : empty(h("p", null, `Nobody has diagnosed ${name} yet.`)));
    if (one) say(one.state === "running" ? `The diagnosis is under way: ${one.step ?? ""}` : verdictText(one.report.verdict));
  }

  fill(view.main, h("p", {class: "crumbs"}, link(["machines"], null, "Machines"), " › ", link(["machines", node.uuid], null, name)), heading("Diagnoses of ", name), buttons,
    body, card("Repairs", "card-repairs", repairsBox), card("All diagnoses", "card-diagnoses", list));
  view.title(`Diagnoses of ${name}`);
  look = view.stream({subject: `node:${node.uuid}`}, {look: read});
  await look();
}

function verdictText(v) {
  return (outcomes[v.outcome]?.[1] ?? "There is no verdict yet") + (v.finding ? `: ${v.finding}` : "") + (v.proof ? `: ${v.proof.text}` : "");
}

// report shows a diagnosis, under way or ended.
function report(d) {
  const r = d.report;
  const findings = r.findings ?? [];
  const v = r.verdict ?? {};
  const cause = v.outcome === "cause-found" ? findings.find((f) => f.id === v.finding) : undefined;
  const follows = new Set(v.consequences ?? []);
  const consequences = findings.filter((f) => f !== cause && follows.has(f.id));
  const rest = findings.filter((f) => f !== cause && !follows.has(f.id));
  return [
    h("div", {class: "strip"}, d.state === "running" ? badge("work", "under way") : badge(...(outcomes[v.outcome] ?? ["wait", "no verdict"])),
      d.state === "failed" && badge("bad", "the diagnosis failed"), d.state === "running" && h("span", null, d.step), h("span", null, "asked for ", moment(d.requested_at), d.requested_by && ` by ${d.requested_by}`),
      r.examined_in > 0 && h("span", null, `disks examined in ${r.examined_in} s`)),
    v.proof && h("p", {class: "note good", "data-proof": v.proof.kind}, mark("good"), " ", proofs[v.proof.kind] ?? "Proof", ": ", v.proof.text),
    d.problem && h("p", {class: "note bad"}, mark("bad"), " ", d.problem),
    card("Boot", "card-boot", ladder(r, d.state)),
    cause && card("Cause", "card-cause", finding(cause, "cause")),
    consequences.length > 0 && card("What follows from it", "card-consequences", consequences.map((f, i) => finding(f, "consequence" + i))),
    rest.length > 0 && card("Further findings", "card-further", rest.map((f, i) => finding(f, "further" + i))),
    r.not_examined?.length > 0 && card("What was not examined", "card-gaps", h("ul", {class: "plain"}, r.not_examined.map((g) => h("li", null, mark("warn"), " ", h("b", null, g.what), ": ", g.why)))),
    card("What was read", "card-read", read(r)),
  ];
}

// stageStates says of each stage whether the machine gets through it, or how much of the stage was examined. What lies behind a broken stage is not
// reached; that a stage is reached is said only of a machine that works, and of the power that was read.
function stageStates(r, state) {
  const v = r.verdict ?? {};
  const isOn = r.observed?.some((o) => o.name === "power" && o.text === "power on");
  const broken = v.outcome === "cause-found" ? stages.indexOf(v.stage) : -1;
  const coverage = new Map((v.ladder ?? []).map((rung) => [rung.stage, rung.coverage]));
  return stages.map((stage, i) => {
    if (stage === "power" && isOn || v.outcome === "works") return "reached";
    if (state === "running" || !v.outcome) return "unknown";
    if (broken >= 0 && i >= broken) return i === broken ? "broken" : "missed";
    return coverage.get(stage) ?? "unknown";
  });
}

const stageWords = {reached: "reached", broken: "broken", missed: "not reached", unknown: "not known", examined: "examined, nothing found", partly: "examined in part", "not-examined": "not examined"};
const stageMarks = {reached: "good", broken: "bad", missed: "still", unknown: "wait", examined: "still", partly: "warn", "not-examined": "wait"};

// ladder draws the stages of a boot from the first to the last, each with a shape and a word.
function ladder(r, state) {
  const all = stageStates(r, state);
  return h("ol", {class: "ladder"}, stages.map((stage, i) => h("li", {class: all[i], "data-stage": stage, "data-state": all[i]},
    s("svg", {class: "rung", viewBox: "0 0 24 24", width: 24, height: 24, "aria-hidden": "true"}, s("circle", {cx: 12, cy: 12, r: 10})),
    h("span", {class: "rung-mark"}, mark(stageMarks[all[i]])), h("b", null, stage), h("span", {class: "rung-word"}, stageWords[all[i]]))));
}

function finding(f, key) {
  const [kind, text] = severities[f.severity] ?? ["still", f.severity];
  return h("article", {class: "finding", "data-finding": f.id},
    h("h3", null, f.title), h("p", {class: "strip"}, badge(kind, text), h("code", null, f.id), f.system && h("span", null, `on ${f.system}${f.disk && f.disk !== f.system ? ` of ${f.disk}` : ""}`), h("span", null, `stage ${f.stage}`), h("span", null, `${Math.round((f.confidence ?? 0) * 100)} % sure`)),
    h("ul", {class: "evidence"}, (f.evidence ?? []).map((e) => h("li", null, evidence(e)))),
    f.repair && facts([["Proposed repair", f.repair.summary], ["Consent it needs", [h("code", null, f.repair.consent), " ", consents[f.repair.consent]]],
      ["What it writes", (f.repair.writes ?? []).join(", ")], ["What it may lose", f.repair.loses]]),
    f.by_hand && h("p", {"data-key": key}, h("b", null, "By hand: "), f.by_hand));
}

function evidence(e) {
  const where = e.command?.length ? e.command.join(" ") + (e.exit === undefined ? "" : `, exit status ${e.exit}`) : e.path && e.path + (e.line ? `:${e.line}` : "");
  return [h("span", {class: "source"}, where ?? e.kind, e.at && [" ", clock(e.at)]), e.text && h("code", {class: "excerpt"}, e.text)];
}

function read(r) {
  const recorded = r.recorded;
  return [
    facts([...(r.observed ?? []).map((o) => [o.name, o.text]), ...(r.systems ?? []).map((x) => [`system on ${x.root}`, x.name || "not named"]),
      ...(r.disks ?? []).map((x) => [`disk ${x.path}`, `${x.model ?? ""} ${x.serial ?? ""} ${Math.round(x.size / 1e9)} GB, ${x.written} bytes written`.trim()]),
      recorded && ["at the last inspection", [moment(recorded.at), ` ${Math.round(recorded.memory / 2 ** 20)} MiB, ${count(recorded.disks.length, "disk", "disks")}, ${count(recorded.nics.length, "network interface", "network interfaces")}`]]].filter(Boolean)),
    r.changes?.length > 0 && h("details", {"data-key": "changes", "aria-label": "History before"}, h("summary", {"data-key": "changes-summary"}, `History before (${r.changes.length})`),
      h("ul", {class: "plain"}, r.changes.slice().reverse().map((c) => h("li", null, clock(c.at), " ", c.text)))),
  ];
}
