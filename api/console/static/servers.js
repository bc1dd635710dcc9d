// Servers, a page at a time.

import {badge, empty, fill, h, heading, link, loading, place, say, trouble} from "./dom.js";
import {ask, path} from "./api.js";
import {kindOf, moment} from "./words.js";

const pageSize = 100;
const filters = ["", "ACTIVE", "RESCUE", "SHUTOFF", "BUILD", "ERROR", "REBUILD", "MIGRATING"];

// literal makes a text the regular expression that finds it: the face takes one as a name.
const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// everywhere asks for the servers of all projects; who may not is given those of the own.
export async function everywhere(parts, query, signal) {
  try {
    return await ask(path("/compute/v2.1/servers", parts, {...query, all_tenants: "1"}), {signal});
  } catch (error) {
    if (error.status !== 403) throw error;
    return ask(path("/compute/v2.1/servers", parts, query), {signal});
  }
}

export async function servers(view) {
  const {query, signal} = view;
  const filter = {status: query.status ?? "", search: query.search ?? ""};
  const markers = [""];
  let shown = "";
  const list = h("div", null, loading("servers"));
  const pager = h("nav", {class: "pager", "aria-label": "Pages", hidden: true});
  const search = h("input", {type: "search", id: "search", value: filter.search, placeholder: "Name", maxlength: 255, autocomplete: "off", spellcheck: "false"});
  const status = h("select", {id: "status"}, filters.map((f) => h("option", {value: f, selected: f === filter.status}, f || "All")));
  const go = () => { location.hash = place(["servers"], {status: status.value, search: search.value.trim()}); };
  status.addEventListener("change", go);

  async function look() {
    try {
      const found = await everywhere(["detail"], {limit: pageSize, marker: markers.at(-1), status: filter.status, name: literal(filter.search)}, signal);
      const all = found.servers;
      const first = (markers.length - 1) * pageSize;
      shown = all.length ? `Servers ${first + 1} to ${first + all.length}` : "No server is found";
      fill(list, all.length ? table(all) : filter.status || filter.search ? empty(h("p", null, "No servers match. "), link(["servers"], null, "Show all servers"))
        : empty(h("h2", null, "No servers yet"), h("p", null, "Make one: ", h("code", null, "salvor server create NAME --flavor small --image IMAGE"))));
      const more = all.length === pageSize;
      const turn = (fn) => async () => { fn(); await look(); say(shown); };
      fill(pager, h("button", {type: "button", "data-key": "back", disabled: markers.length === 1, on: {click: turn(() => markers.pop())}}, "← Back"), h("span", null, shown),
        h("button", {type: "button", "data-key": "on", disabled: !more, on: {click: turn(() => markers.push(all.at(-1).id))}}, "Next →"));
      pager.hidden = markers.length === 1 && !more;
    } catch (error) {
      if (!signal.aborted) fill(list, trouble(error, look));
    }
  }

  fill(view.main, h("div", {class: "head"}, heading("Servers"),
    h("form", {role: "search", class: "search", on: {submit: (e) => { e.preventDefault(); go(); }}},
      h("label", {for: "status"}, "Status "), status, h("label", {for: "search"}, "Search "), search)), list, pager);
  view.title("Servers");
  await look();
  view.stream({type: "state"}, {look, pause: 2000});
}

function table(all) {
  return h("table", {class: "list"}, h("caption", {class: "unseen"}, "Servers"),
    h("thead", null, h("tr", null, ["Server", "Status", "Host", "Changed"].map((t) => h("th", {scope: "col"}, t)))),
    h("tbody", null, all.map((srv) => h("tr", null,
      h("th", {scope: "row"}, link(["servers", srv.id], {"data-key": srv.id}, srv.name || srv.id), h("span", {class: "uuid"}, srv.id)),
      h("td", {"data-label": "Status"}, badge(kindOf(srv.status), srv.status), srv["OS-EXT-STS:task_state"] && h("span", {class: "aim"}, srv["OS-EXT-STS:task_state"])),
      h("td", {"data-label": "Host"}, srv["OS-EXT-SRV-ATTR:host"] || "–"),
      h("td", {"data-label": "Changed"}, moment(srv.updated))))));
}
