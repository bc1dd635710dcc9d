// Speaks to the server that this page came from, and to no other. The token lies in the session storage: it
// goes with the tab, and no other origin sees it.

const tokenKey = "salvor-token";
const patience = 65000; // the server gives up after 60 s

export const token = {
  get: () => sessionStorage.getItem(tokenKey) ?? "",
  set: (text) => sessionStorage.setItem(tokenKey, text),
  drop: () => sessionStorage.removeItem(tokenKey),
};

// Refused is an answer that is no success; status 0: there was none.
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const versions = [
  ["/v1/", {"X-OpenStack-Ironic-API-Version": "1.110"}],
  ["/compute/", {"OpenStack-API-Version": "compute 2.88"}],
];

export function headers(path) {
  const found = versions.find(([begin]) => path.startsWith(begin));
  const all = {Accept: "application/json", ...found?.[1]};
  if (token.get()) all["X-Auth-Token"] = token.get();
  return all;
}

// open sends a request and gives the answer if it is a success. credentials are left out: the browser must
// neither send a password of its own nor ask for one.
export async function open(path, init) {
  let answer;
  try {
    answer = await fetch(path, {credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer", ...init});
  } catch (error) {
    if (init.signal?.aborted && init.signal.reason?.name !== "TimeoutError") throw error;
    throw new Refused(0, init.signal?.aborted ? "The server has not answered in time." : "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const refusal = new Refused(answer.status, await words(answer));
  if (answer.status === 401) document.dispatchEvent(new CustomEvent("unknown", {detail: refusal}));
  throw refusal;
}

// ask sends a request and gives the JSON of the answer; undefined where there is none.
export async function ask(path, {method = "GET", body, signal} = {}) {
  const limits = [AbortSignal.timeout(patience)];
  if (signal) limits.push(signal);
  const init = {method, headers: headers(path), signal: AbortSignal.any(limits)};
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["Content-Type"] = "application/json";
  }
  const answer = await open(path, init);
  try {
    const text = await answer.text();
    return text ? JSON.parse(text) : undefined;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "The answer of the server ended too early, or is none that is understood here.");
  }
}

// words finds what a refusal says: each of the faces has a form of its own.
async function words(answer) {
  const text = await answer.text();
  let said;
  try {
    let found = JSON.parse(text);
    if (found?.error_message) found = typeof found.error_message === "string" ? JSON.parse(found.error_message) : found.error_message;
    else found = Object.values(found ?? {})[0];
    said = found?.faultstring ?? found?.message ?? found?.description;
  } catch { /* what is no JSON is told by its status */ }
  return typeof said === "string" && said ? said : `The server answers ${answer.status} ${answer.statusText}`.trim() + ".";
}

// path joins the parts of a path, each escaped, and a query.
export function path(base, parts, query) {
  const text = new URLSearchParams(Object.entries(query ?? {}).filter(([, v]) => v !== "" && v !== undefined && v !== null && v !== false)).toString();
  return [base, ...parts.map(encodeURIComponent)].join("/") + (text ? "?" + text : "");
}
