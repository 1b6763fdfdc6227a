// The inbox of development: asks every second what came, and shows it as text.

const POLL = 1000; // milliseconds after the last answer
const PATIENCE = 10000; // for one answer
const KEPT = 200;

const at = (id) => document.getElementById(id);
const state = { last: 0, timer: null, rows: new Map() };

const HERE = new URL("inbox", document.baseURI);
at("address").textContent = `${HERE.href}/NAME`;
at("how").textContent = `millpond webhooks endpoints create ${HERE.href}/mine\nmillpond webhooks trigger job.succeeded`;

async function ask(method, query = "", body) {
  const answer = await fetch(`inbox.json${query}`, {
    method, headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE), cache: "no-store", credentials: "omit",
  });
  const told = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.hint ? `${told.detail} ${told.hint}` : told.detail || `The server answered ${answer.status}.`);
  return told;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const SIGNED = { good: "signature good", bad: "signature bad", unsigned: "not signed" };

function judge(row, item) {
  const badge = row.querySelector(".badge");
  badge.textContent = SIGNED[item.signature];
  badge.className = `badge ${item.signature}`;
  const reason = row.querySelector(".reason");
  reason.textContent = item.reason || "";
  reason.hidden = !item.reason;
}

function make(item) {
  const row = at("row").content.firstElementChild.cloneNode(true);
  row.querySelector(".event").textContent = item.event || "something";
  row.querySelector(".where").textContent = `${item.name} · answered ${item.answered} · ${item.size} bytes`;
  const time = row.querySelector("time");
  time.dateTime = item.at;
  time.textContent = new Date(item.at).toLocaleTimeString();
  const table = row.querySelector("tbody");
  for (const [name, value] of item.headers) {
    const line = table.insertRow();
    line.insertCell().textContent = name;
    line.insertCell().textContent = value;
  }
  row.querySelector(".body").textContent = item.body ? pretty(item.body) : "(none)";
  judge(row, item);
  return row;
}

function show(found) {
  if (found.last < state.last) forget(); // the server was started anew
  for (const item of found.data.toReversed()) {
    const known = state.rows.get(item.number);
    if (known) {
      judge(known, item);
      continue;
    }
    const row = make(item);
    state.rows.set(item.number, row);
    at("list").prepend(row);
  }
  while (state.rows.size > KEPT) {
    const [oldest, row] = state.rows.entries().next().value;
    row.remove();
    state.rows.delete(oldest);
  }
  state.last = found.last;
  at("empty").hidden = state.rows.size > 0;
  at("clear").disabled = state.rows.size === 0;
  say(state.rows.size === 0 ? "Waiting for the first." : `${state.rows.size} of the last ${KEPT}; waiting for more.`);
}

function forget() {
  state.rows.clear();
  state.last = 0;
  at("list").replaceChildren();
}

function say(text, isBad = false) {
  if (at("line").textContent !== text) at("line").textContent = text;
  at("line").classList.toggle("bad", isBad);
}

async function look(after = state.last) {
  clearTimeout(state.timer);
  try {
    const found = await ask("GET", `?after=${after}`);
    show(found.last < after ? await ask("GET") : found);
  } catch (error) {
    say(error instanceof TypeError || error.name === "TimeoutError" ? "The server is not there; trying again." : error.message, true);
  }
  state.timer = setTimeout(look, POLL);
}

at("secret-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = at("secret-told");
  try {
    await ask("POST", "", { secret: at("secret").value.trim() });
    at("secret").value = "";
    told.textContent = "It is known now.";
    await look(0);
  } catch (error) {
    told.textContent = error.message;
  }
});

at("clear").addEventListener("click", async () => {
  try {
    await ask("DELETE");
    forget();
    await look(0);
  } catch (error) {
    say(error.message, true);
  }
});

look();
