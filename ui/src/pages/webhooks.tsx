// Webhooks: who is told of what, what came of each try, and telling it once more.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act, get, refusal, session } from "../api";
import { useLoaded } from "../live";
import {
  Ago,
  Badge,
  Button,
  Copy,
  Empty,
  Fact,
  Facts,
  ForAll,
  Id,
  Moment,
  Page,
  Panel,
  Show,
  Tabs,
  Tile,
  type Tone,
} from "../parts/basics";
import { ask, showSecret } from "../parts/dialogs";
import { Field, type FieldSpec } from "../parts/forms";
import { whose } from "../parts/frame";
import { type Column, Pager, Table } from "../parts/table";
import { attempt, toast } from "../parts/toasts";
import { go, Link, part, place, ROOT, setQuery } from "../router";
import type {
  Deliveries,
  Delivery,
  DeliveryLog,
  DeliveryTry,
  EndpointInfo,
  EndpointStats,
  Endpoints,
  NewEndpoint,
  Resent,
} from "../wire";
import { bytes, count, plain, span } from "../words";
import "./webhooks.css";

const MOMENTS = [
  ...["job.submitted", "job.queued", "job.started", "job.requeued", "job.parked", "job.answered", "job.delivering"],
  ...["job.succeeded", "job.failed", "job.canceled", "job.expired", "job.blocked", "job.retried", "endpoint.disabled"],
] as const;
const ENDS: readonly string[] = ["job.succeeded", "job.failed", "job.canceled", "job.expired", "job.blocked"];
const STATES: Record<string, Tone> = { delivered: "good", failed: "bad", pending: "info", withdrawn: "quiet" };
const SMALL_PAGE = 25;

/** Whose thing a page shows: told in the address, or the tenant that is looked at. */
function owner(): { tenant?: string } {
  const of = place.value.query.get("of");
  return of ? { tenant: of } : whose();
}

// The page of all

export function Webhooks() {
  const tab = place.value.query.get("tab") === "deliveries" ? "deliveries" : "endpoints";
  return (
    <Page
      title="Webhooks"
      acts={
        <>
          {session.value?.is_development && !session.value.tenant && (
            <Link to="/inbox" class="button">
              Inbox
            </Link>
          )}
          <Button tone="main" because={refusal("operator")} onClick={makeEndpoint}>
            Make an endpoint
          </Button>
        </>
      }
    >
      <Tabs
        label="What to look at"
        chosen={tab}
        onChoose={(name) => go("/webhooks", { ...whose(), tab: name === "endpoints" ? null : name })}
        tabs={[
          { name: "endpoints", title: "Endpoints" },
          { name: "deliveries", title: "Deliveries" },
        ]}
      />
      {tab === "endpoints" ? <EndpointList /> : <DeliveryList />}
    </Page>
  );
}

function EndpointList() {
  const cursor = place.value.query.get("cursor");
  const query = { ...whose(), cursor, limit: SMALL_PAGE };
  const found = useLoaded((signal) => get<Endpoints>("endpoints", query, signal), [query]);
  return (
    <Panel>
      <Show of={found}>
        {(page) => (
          <>
            <Table
              label="Endpoints"
              columns={ENDPOINT_COLUMNS}
              rows={page.data}
              keyOf={(endpoint) => endpoint.id}
              onOpen={(endpoint) => go(`/webhooks/${part(endpoint.id)}`, { of: endpoint.tenant })}
              toneOf={(endpoint) => (endpoint.disabled_at ? "bad" : endpoint.failing_since ? "warn" : undefined)}
              empty={<NoEndpoints />}
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

function NoEndpoints() {
  return (
    <Empty title="There is no endpoint yet.">
      <p>An endpoint is a URL of a tenant that is told of its jobs, by signed requests that are tried again.</p>
      <pre class="webhooks-command">millpond webhooks endpoints create https://acme.example/hooks --tenant acme</pre>
      {session.value?.is_development && (
        <p>
          Here, in development, <code>{inbox("name")}</code> takes whatever comes, and the{" "}
          <Link to="/inbox">inbox</Link> shows it.
        </p>
      )}
    </Empty>
  );
}

const ENDPOINT_COLUMNS: readonly Column<EndpointInfo>[] = [
  { name: "tenant", head: "Tenant", cell: (endpoint) => endpoint.tenant },
  {
    name: "url",
    head: "URL",
    cell: (endpoint) => (
      <Link to={`/webhooks/${part(endpoint.id)}`} query={{ of: endpoint.tenant }} class="webhooks-url">
        {endpoint.url ?? "pulled, not sent"}
      </Link>
    ),
  },
  { name: "events", head: "Events", hide: "medium", cell: (endpoint) => <Events names={endpoint.events} /> },
  { name: "state", head: "State", cell: (endpoint) => <EndpointState endpoint={endpoint} /> },
  {
    name: "share",
    head: "Delivered, 24 h",
    align: "right",
    cell: (endpoint) => <Statistic endpoint={endpoint} told={(stats) => share(stats)} />,
  },
  {
    name: "p90",
    head: "Answers in (p90)",
    align: "right",
    hide: "narrow",
    cell: (endpoint) => <Statistic endpoint={endpoint} told={(stats) => span(stats.seconds_p90)} />,
  },
  {
    name: "failing",
    head: "Failing since",
    cell: (endpoint) => <Ago at={endpoint.failing_since} none="–" />,
  },
];

function Events({ names }: { names: readonly string[] }) {
  if (names.includes("*")) return <>everything</>;
  if (names.length === ENDS.length && ENDS.every((name) => names.includes(name))) return <>every end of a job</>;
  return <>{names.map((name) => name.replace("job.", "")).join(", ")}</>;
}

function EndpointState({ endpoint }: { endpoint: EndpointInfo }) {
  if (endpoint.disabled_at)
    return (
      <>
        <Badge tone="bad">disabled</Badge>{" "}
        <span class="soft">{endpoint.disabled_reason ? plain(endpoint.disabled_reason) : ""}</span>
      </>
    );
  if (endpoint.failing_since) return <Badge tone="warn">failing</Badge>;
  return <Badge tone="good">sending</Badge>;
}

/** The share of those that came to an end and were delivered. */
function share(stats: EndpointStats): string {
  const ended = stats.delivered + stats.failed;
  return ended ? `${((stats.delivered / ended) * 100).toFixed(stats.failed ? 1 : 0)} %` : "–";
}

const known = new Map<string, Promise<EndpointStats>>();

/** One look for all cells of a row, for the length of a few beats: many rows are many questions. */
function statsOf(endpoint: EndpointInfo): Promise<EndpointStats> {
  const asked =
    known.get(endpoint.id) ?? get<EndpointStats>(`endpoints/${part(endpoint.id)}/stats`, { tenant: endpoint.tenant });
  if (!known.has(endpoint.id)) {
    known.set(endpoint.id, asked);
    setTimeout(() => known.delete(endpoint.id), 15_000);
  }
  return asked;
}

function Statistic({ endpoint, told }: { endpoint: EndpointInfo; told: (stats: EndpointStats) => string }) {
  const stats = useLoaded(() => statsOf(endpoint), [endpoint.id]);
  return <span class="numeric">{stats.value ? told(stats.value) : stats.problem ? "?" : "…"}</span>;
}

// Making, and what one may do with one

function eventBoxes(chosen: readonly string[]): ComponentChildren {
  const isAll = chosen.includes("*");
  return (
    <fieldset class="webhooks-events">
      <legend>Events</legend>
      <label>
        <input type="checkbox" name="event *" defaultChecked={isAll} /> everything, also what is yet to be invented
      </label>
      {MOMENTS.map((name) => (
        <label key={name}>
          <input type="checkbox" name={`event ${name}`} defaultChecked={chosen.includes(name)} /> {name}
        </label>
      ))}
    </fieldset>
  );
}

function chosenEvents(values: Record<string, string>): string[] {
  const chosen = Object.keys(values)
    .filter((name) => name.startsWith("event "))
    .map((name) => name.slice(6));
  return chosen.includes("*") ? ["*"] : chosen;
}

function words(text: string | undefined): string[] {
  return (text ?? "").split(/[\s,]+/).filter(Boolean);
}

function makeEndpoint() {
  const own = session.value?.tenant ?? place.value.query.get("tenant");
  const fields: FieldSpec[] = [
    ...(own ? [] : [{ name: "tenant", label: "Tenant", required: true, hint: "Whose jobs it is told of." }]),
    {
      name: "url",
      label: "URL",
      placeholder: "https://acme.example/hooks",
      hint: session.value?.is_development
        ? `Empty: nothing is sent, and what is due waits to be pulled. To try it: ${inbox("try")}`
        : "Empty: nothing is sent, and what is due waits to be pulled.",
    },
    { name: "kinds", label: "Only of these kinds", hint: "Names with a space between them. Empty: of all kinds." },
    { name: "description", label: "Description", hint: "For whoever finds it later." },
  ];
  return ask({
    title: "Make an endpoint",
    text: eventBoxes(ENDS),
    action: "Make it",
    fields,
    act: async (values) => {
      const body = {
        url: values["url"]?.trim() || null,
        events: chosenEvents(values),
        kinds: words(values["kinds"]),
        description: values["description"] ?? "",
      };
      const tenant = own ?? values["tenant"]?.trim() ?? "";
      const made = await act<NewEndpoint>("POST", "endpoints", body, { query: { tenant } });
      tellSecret(made, "What is sent to it is signed with this.");
      go(`/webhooks/${part(made.id)}`, { of: made.tenant });
    },
  });
}

function tellSecret(made: NewEndpoint, text: string): void {
  showSecret("The secret of the endpoint", `${text} It is told this once: give it to the receiver now.`, made.secret);
}

interface ActProps {
  endpoint: EndpointInfo;
  reload: () => void;
}

function request<T>(endpoint: EndpointInfo, method: string, path: string, body?: unknown): Promise<T> {
  return act<T>(method, `endpoints/${part(endpoint.id)}${path}`, body, { query: { tenant: endpoint.tenant } });
}

function changeEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Change the endpoint",
    text: (
      <>
        <p>What is sent from now on goes so; what is due already too.</p>
        {eventBoxes(endpoint.events)}
      </>
    ),
    action: "Change",
    fields: [
      ...(endpoint.url === null
        ? []
        : [{ name: "url", label: "URL", value: endpoint.url, required: true, monospace: true }]),
      {
        name: "kinds",
        label: "Only of these kinds",
        value: endpoint.kinds.join(" "),
        hint: "Names with a space between them. Empty: of all kinds.",
      },
      { name: "description", label: "Description", value: endpoint.description },
      {
        name: "limit",
        label: "Requests at once",
        type: "number",
        value: endpoint.limit ?? "",
        hint: "Empty: the server's own limit.",
      },
    ],
    act: async (values) => {
      await request(endpoint, "PATCH", "", {
        ...(endpoint.url === null ? {} : { url: values["url"]?.trim() }),
        events: chosenEvents(values),
        kinds: words(values["kinds"]),
        description: values["description"] ?? "",
        limit: values["limit"] ? Number(values["limit"]) : null,
      });
      toast("The endpoint is changed.");
      reload();
    },
  });
}

function testEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Send a test?",
    text: `${endpoint.url ?? "Whoever pulls"} is told of a job that never was. It is signed like any other, and listed with the deliveries.`,
    action: "Send the test",
    fields: [{ name: "event", label: "Event", type: "select", options: MOMENTS, value: "job.succeeded" }],
    act: async ({ event }) => {
      const made = await request<Delivery>(endpoint, "POST", "/test", { event });
      toast("The test is on its way.");
      reload();
      go(`/deliveries/${part(made.id)}`, { of: made.tenant });
    },
  });
}

function rotateEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Give the endpoint a new secret?",
    text: "The new secret is told once. While the overlap lasts, what is sent is signed with both, so that the receiver can change over without losing anything.",
    action: "Rotate",
    fields: [
      {
        name: "overlap",
        label: "How long the old secret signs too",
        value: "24h",
        required: true,
        hint: "Such as 15m, 24h, 7d; at most 30d. 0: not at all.",
      },
    ],
    act: async ({ overlap }) => {
      const made = await request<NewEndpoint>(endpoint, "POST", "/rotate", {
        overlap: Number(overlap) === 0 ? 0 : overlap,
      });
      tellSecret(made, "From now on this signs what is sent.");
      reload();
    },
  });
}

function disableEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Disable the endpoint?",
    text: "Nothing is sent to it until it is enabled again. What is due meanwhile waits, and is given up when its time is over.",
    action: "Disable",
    tone: "bad",
    fields: [{ name: "reason", label: "Why", hint: "It stands beside the endpoint and in the audit." }],
    act: async ({ reason }) => {
      await request(endpoint, "POST", "/disable", reason ? { reason } : {});
      toast("The endpoint is disabled.");
      reload();
    },
  });
}

function enableEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Enable the endpoint?",
    text: "From now on it is told again, with what is still due first. What was given up is not sent by itself: use “Resend what failed”.",
    action: "Enable",
    act: async () => {
      await request(endpoint, "POST", "/enable");
      toast("The endpoint is enabled.");
      reload();
    },
  });
}

/** A moment as a field of a form wants it: the local time, without its zone. */
function local(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function resendSince({ endpoint, reload }: ActProps) {
  const since = endpoint.failing_since ? new Date(endpoint.failing_since) : new Date(Date.now() - 24 * 3_600_000);
  return ask({
    title: "Send once more?",
    text: "Each delivery keeps its id, so a receiver that looks at webhook-id takes none of them twice.",
    action: "Resend",
    fields: [
      { name: "since", label: "Since", type: "datetime-local", value: local(since), required: true },
      {
        name: "what",
        label: "What",
        type: "select",
        value: "failed",
        options: [
          { value: "failed", label: "only what failed" },
          { value: "all", label: "everything, also what was delivered" },
        ],
      },
    ],
    act: async (values) => {
      const told = await request<Resent>(endpoint, "POST", "/resend", {
        since: new Date(values["since"] ?? "").toISOString(),
        only_failed: values["what"] !== "all",
      });
      toast(told.count ? `${count(told.count)} are sent once more.` : "Nothing failed since then.");
      reload();
    },
  });
}

function deleteEndpoint({ endpoint }: ActProps) {
  return ask({
    title: "Delete the endpoint?",
    text: `${endpoint.url ?? "It"} is told nothing any more, and what was not sent yet is not sent. Its deliveries can still be read. This cannot be undone.`,
    action: "Delete",
    tone: "bad",
    act: async () => {
      await request(endpoint, "DELETE", "");
      toast("The endpoint is deleted.");
      go("/webhooks", whose());
    },
  });
}

function Acts(props: ActProps) {
  const because = refusal("operator");
  const isOff = Boolean(props.endpoint.disabled_at);
  const off = isOff ? "It is disabled." : undefined;
  const acts: readonly [string, (props: ActProps) => unknown, string | undefined, "plain" | "bad"][] = [
    ["Send a test", testEndpoint, because ?? off, "plain"],
    ["Resend what failed", resendSince, because ?? off, "plain"],
    ["Change", changeEndpoint, because, "plain"],
    ["Rotate secret", rotateEndpoint, because, "plain"],
    isOff ? ["Enable", enableEndpoint, because, "plain"] : ["Disable", disableEndpoint, because, "plain"],
    ["Delete", deleteEndpoint, because, "bad"],
  ];
  return (
    <>
      {acts.map(([name, doing, refused, tone]) => (
        <Button key={name} tone={tone} because={refused} onClick={() => doing(props)}>
          {name}
        </Button>
      ))}
    </>
  );
}

// One endpoint

export function EndpointPage({ id }: { id: string }) {
  const query = owner();
  const found = useLoaded((signal) => get<EndpointInfo>(`endpoints/${part(id)}`, query, signal), [id, query]);
  const endpoint = found.value;
  return (
    <Page
      title={endpoint ? (endpoint.url ?? "Pulled endpoint") : "Endpoint"}
      tab="Endpoint"
      aside={endpoint && <EndpointState endpoint={endpoint} />}
      acts={endpoint && <Acts endpoint={endpoint} reload={found.reload} />}
    >
      <Show of={found}>{(one) => <One endpoint={one} />}</Show>
    </Page>
  );
}

function One({ endpoint }: { endpoint: EndpointInfo }) {
  const stats = useLoaded(
    (signal) => get<EndpointStats>(`endpoints/${part(endpoint.id)}/stats`, { tenant: endpoint.tenant }, signal),
    [endpoint.id],
  );
  return (
    <>
      {endpoint.disabled_at && (
        <div class="trouble" role="alert">
          <p>
            <strong>Nothing is sent to it</strong> since <Moment at={endpoint.disabled_at} />
            {endpoint.disabled_reason && `: ${plain(endpoint.disabled_reason)}`}.
          </p>
          <p>Repair the receiver, enable the endpoint, then resend what failed.</p>
        </div>
      )}
      {!endpoint.disabled_at && endpoint.failing_since && (
        <p class="stale">
          It has taken nothing since <Ago at={endpoint.failing_since} />. The last tries are below, with what it
          answered.
        </p>
      )}
      <Show of={stats} lines={2}>
        {(told) => (
          <div class="tiles">
            <Tile
              label="Delivered, 24 h"
              value={share(told)}
              note={`${count(told.delivered)} of ${count(told.delivered + told.failed)}`}
              tone={told.failed ? "warn" : "good"}
            />
            <Tile label="Failed" value={count(told.failed)} tone={told.failed ? "bad" : "quiet"} note="given up" />
            <Tile label="Pending" value={count(told.pending)} note="to be tried" />
            <Tile
              label="Answers in"
              value={span(told.seconds_p90)}
              note={`p90; half of them in ${span(told.seconds_p50)}`}
            />
          </div>
        )}
      </Show>
      <Panel title="Facts">
        <Facts>
          <Fact name="Id">
            <Id id={endpoint.id} tenant={endpoint.tenant} />
          </Fact>
          <Fact name="Tenant">
            {endpoint.tenant}
            {endpoint.account && `, account ${endpoint.account}`}
          </Fact>
          <Fact name="Events">
            <Events names={endpoint.events} />
          </Fact>
          <Fact name="Kinds">{endpoint.kinds.join(", ") || "all"}</Fact>
          <Fact name="Told in">{endpoint.is_native ? "the words of Millpond" : "the words of each kind"}</Fact>
          <Fact name="Requests at once">{endpoint.limit ?? "the server's limit"}</Fact>
          <Fact name="Made">
            <Ago at={endpoint.created_at} />
          </Fact>
          <Fact name="Old secret signs until">
            <Moment at={endpoint.rotated_until} none="there is none" />
          </Fact>
          <Fact name="Description">{endpoint.description || "–"}</Fact>
        </Facts>
      </Panel>
      <DeliveryList endpoint={endpoint} />
    </>
  );
}

// Deliveries

function DeliveryList({ endpoint }: { endpoint?: EndpointInfo }) {
  const given = place.value.query;
  const query = {
    ...(endpoint
      ? { tenant: endpoint.tenant, endpoint: endpoint.id }
      : { ...whose(), endpoint: given.get("endpoint") }),
    state: given.get("state"),
    cursor: given.get("cursor"),
  };
  const found = useLoaded((signal) => get<Deliveries>("deliveries", query, signal), [query]);
  const filter = (changes: Record<string, string>) => setQuery({ ...changes, cursor: null });
  return (
    <Panel {...(endpoint ? { title: "Deliveries" } : {})}>
      <div class="filters">
        <Field
          key={`state ${given.get("state")}`}
          name="state"
          label="State"
          type="select"
          value={given.get("state") ?? ""}
          options={[{ value: "", label: "any" }, ...Object.keys(STATES)]}
          onInput={(state) => filter({ state })}
        />
        {!endpoint && <EndpointFilter value={given.get("endpoint")} onChange={(id) => filter({ endpoint: id })} />}
        {!endpoint && !session.value?.tenant && (
          <TenantFilter value={given.get("tenant")} onChange={(tenant) => filter({ tenant })} />
        )}
      </div>
      <Show of={found}>
        {(page) => (
          <>
            <Table
              label="Deliveries"
              columns={deliveryColumns(Boolean(endpoint))}
              rows={page.data}
              keyOf={(delivery) => delivery.id}
              onOpen={(delivery) => go(`/deliveries/${part(delivery.id)}`, { of: delivery.tenant })}
              toneOf={(delivery) => (delivery.state === "failed" ? "bad" : undefined)}
              empty={<NoDeliveries isFiltered={Boolean(query.state || query.cursor || query.endpoint)} />}
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

/** What is typed counts when it is whole: at Enter, or when the field is left. */
function TypedFilter(props: { name: string; label: string; value: string | null; onChange: (text: string) => void }) {
  const { name, label, value, onChange } = props;
  const done = (event: { currentTarget: HTMLInputElement }) => {
    const text = event.currentTarget.value.trim();
    if (text !== (value ?? "")) onChange(text);
  };
  return (
    <div class="field">
      <label for={`filter-${name}`}>{label}</label>
      <input
        key={value ?? ""}
        id={`filter-${name}`}
        defaultValue={value ?? ""}
        spellcheck={false}
        autocomplete="off"
        onChange={done}
        onKeyDown={(event) => event.key === "Enter" && done(event)}
      />
    </div>
  );
}

function EndpointFilter({ value, onChange }: { value: string | null; onChange: (id: string) => void }) {
  return <TypedFilter name="endpoint" label="Endpoint (ep_…)" value={value} onChange={onChange} />;
}

function TenantFilter({ value, onChange }: { value: string | null; onChange: (tenant: string) => void }) {
  return <TypedFilter name="tenant" label="Tenant" value={value} onChange={onChange} />;
}

function NoDeliveries({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No delivery fits." />
  ) : (
    <Empty title="Nothing was told to anybody yet.">
      <p>A delivery is one event of one job for one receiver. Each stands here with all its tries.</p>
    </Empty>
  );
}

function deliveryColumns(isOfOne: boolean): readonly Column<Delivery>[] {
  return [
    {
      name: "id",
      head: "Delivery",
      cell: (delivery) => <Id id={delivery.id} tenant={delivery.tenant} />,
    },
    { name: "event", head: "Event", cell: (delivery) => delivery.event },
    {
      name: "state",
      head: "State",
      cell: (delivery) => <Badge tone={STATES[delivery.state] ?? "quiet"}>{delivery.state}</Badge>,
    },
    { name: "tries", head: "Tries", align: "right", cell: (delivery) => count(delivery.tries) },
    ...(isOfOne
      ? []
      : [
          { name: "tenant", head: "Tenant", cell: (delivery: Delivery) => delivery.tenant },
          {
            name: "endpoint",
            head: "To",
            hide: "narrow" as const,
            cell: (delivery: Delivery) =>
              delivery.endpoint_id ? (
                <Id id={delivery.endpoint_id} tenant={delivery.tenant} />
              ) : (
                <span class="soft">the job's own webhook</span>
              ),
          },
        ]),
    {
      name: "job",
      head: "Job",
      hide: "narrow",
      cell: (delivery) => (delivery.job_id ? <Id id={delivery.job_id} tenant={delivery.tenant} /> : "–"),
    },
    {
      name: "next",
      head: "Next try",
      cell: (delivery) => (delivery.due_at ? <Ago at={delivery.due_at} /> : <span class="soft">–</span>),
    },
    { name: "made", head: "Made", cell: (delivery) => <Ago at={delivery.created_at} /> },
  ];
}

// One delivery

export function DeliveryPage({ id }: { id: string }) {
  const query = owner();
  const found = useLoaded((signal) => get<DeliveryLog>(`deliveries/${part(id)}`, query, signal), [id, query]);
  const delivery = found.value;
  const resend = () =>
    ask({
      title: "Send it once more?",
      text: `It goes to ${delivery?.url ?? "whoever pulls"} now, with the same id and body, signed anew. A receiver that looks at webhook-id takes it once.`,
      action: "Resend",
      act: async () => {
        await act("POST", `deliveries/${part(id)}/resend`, undefined, { query });
        toast("It is on its way.");
        found.reload();
      },
    });
  return (
    <Page
      title={delivery ? delivery.event : "Delivery"}
      tab="Delivery"
      aside={delivery && <Badge tone={STATES[delivery.state] ?? "quiet"}>{delivery.state}</Badge>}
      acts={
        delivery && (
          <Button
            tone="main"
            because={refusal("operator") ?? (delivery.state === "withdrawn" ? "It was withdrawn." : undefined)}
            onClick={resend}
          >
            Resend
          </Button>
        )
      }
    >
      <Show of={found}>{(one) => <OneDelivery delivery={one} />}</Show>
    </Page>
  );
}

function OneDelivery({ delivery }: { delivery: DeliveryLog }) {
  return (
    <>
      <Panel title="Facts">
        <Facts>
          <Fact name="Id (webhook-id)">
            <Id id={delivery.id} tenant={delivery.tenant} />
          </Fact>
          <Fact name="Tenant">{delivery.tenant}</Fact>
          <Fact name="Goes to">{delivery.url ?? "whoever pulls it"}</Fact>
          <Fact name="Endpoint">
            {delivery.endpoint_id ? <Id id={delivery.endpoint_id} tenant={delivery.tenant} /> : "the job's own webhook"}
          </Fact>
          <Fact name="Job">
            {delivery.job_id ? <Id id={delivery.job_id} tenant={delivery.tenant} /> : "none: a test"}
          </Fact>
          <Fact name="Made">
            <Ago at={delivery.created_at} />
          </Fact>
          <Fact name="Next try">
            <Ago at={delivery.due_at} none="none" />
          </Fact>
          <Fact name="Settled">
            <Ago at={delivery.settled_at} none="not yet" />
          </Fact>
        </Facts>
      </Panel>
      <Panel title="Body" aside="the same in every try">
        {delivery.body === null ? (
          <p class="soft">This server does not know the words of the job's kind.</p>
        ) : (
          <Text label="Body" text={pretty(delivery.body)} />
        )}
      </Panel>
      <Panel title="Tries" aside={count(delivery.log.length)}>
        {delivery.log.length ? (
          [...delivery.log].reverse().map((each, index) => <Try key={each.number} each={each} isOpen={index === 0} />)
        ) : (
          <p class="soft">It was not tried yet.</p>
        )}
      </Panel>
    </>
  );
}

function Try({ each, isOpen }: { each: DeliveryTry; isOpen: boolean }) {
  const isGood = each.status !== null && each.status >= 200 && each.status < 300;
  return (
    <details class="webhooks-try" open={isOpen}>
      <summary>
        <strong>Try {each.number}</strong> <Badge tone={isGood ? "good" : "bad"}>{each.status ?? "no answer"}</Badge>{" "}
        {each.error && <span class="wrong">{each.error}</span>}{" "}
        <span class="soft">
          <Moment at={each.at} />, took {span(each.seconds)}
        </span>
      </summary>
      {each.url && <p class="soft">POST {each.url}</p>}
      <div class="grid">
        <div>
          <h3>Request headers</h3>
          <Headers label={`Request headers of try ${each.number}`} told={Object.entries(each.request_headers)} />
        </div>
        <div>
          <h3>Response</h3>
          {each.status === null ? (
            <p class="soft">There was none: {each.error}</p>
          ) : (
            <>
              <Headers label={`Response headers of try ${each.number}`} told={Object.entries(each.response_headers)} />
              <Text label={`Response of try ${each.number}`} text={each.response_body || "(no body)"} />
            </>
          )}
        </div>
      </div>
    </details>
  );
}

function Headers({ told, label }: { told: readonly (readonly [string, string])[]; label: string }) {
  if (!told.length) return <p class="soft">none</p>;
  return (
    <section class="table-box webhooks-headers" aria-label={label} tabIndex={0}>
      <dl>
        {told.map(([name, value], index) => (
          <div key={`${name}${index}`}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Text({ text, label }: { text: string; label: string }) {
  return (
    <div class="json">
      <Copy text={text} what={label.toLowerCase()} label="Copy" />
      <pre tabIndex={0} role="group" aria-label={label}>
        {text}
      </pre>
    </div>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// The inbox of development

interface Received {
  number: number;
  name: string;
  at: string;
  answered: number;
  headers: [string, string][];
  body: string;
  size: number;
  event: string | null;
  signature: "good" | "bad" | "unsigned";
  reason: string | null;
}

const SIGNATURES: Record<Received["signature"], [Tone, string]> = {
  good: ["good", "signature is good"],
  bad: ["bad", "signature is wrong"],
  unsigned: ["quiet", "unsigned"],
};

/** The inbox lives beside the dashboard, at the root of the server. */
function inbox(name: string): string {
  return `${location.origin}${ROOT.replace(/\/ui$/, "")}/inbox/${name}`;
}

/** Behind the door it stands beside /v1, and not below it. */
const LETTERS = "../inbox.json";

export function InboxPage() {
  return (
    <ForAll title="Inbox">
      <Inbox />
    </ForAll>
  );
}

function Inbox() {
  const found = useLoaded((signal) => get<{ data: Received[] }>(LETTERS, {}, signal), []);
  const isDevelopment = session.value?.is_development;
  if (!isDevelopment)
    return (
      <Page title="Inbox">
        <Empty title="Production has no inbox.">
          <p>
            It is a part of <code>millpond up</code>: a receiver of webhooks for whoever develops one.
          </p>
        </Empty>
      </Page>
    );
  const clear = () => attempt(() => act("DELETE", LETTERS), "The inbox is empty.").then(found.reload);
  return (
    <Page
      title="Inbox"
      aside={<span class="soft">what came to the receiver of development; it is kept in memory alone</span>}
      acts={
        <Button because={refusal("operator")} onClick={clear}>
          Empty it
        </Button>
      }
    >
      <Panel>
        <p>
          Send webhooks to <code>{inbox("any-name")}</code> <Copy text={inbox("try")} what="URL" />. With{" "}
          <code>?status=500</code> it answers so, to see what a failure leads to.
        </p>
      </Panel>
      <Show of={found}>
        {({ data }) =>
          data.length ? (
            data.map((one) => <Letter key={one.number} one={one} />)
          ) : (
            <Panel>
              <Empty title="Nothing has come yet.">
                <p>Make an endpoint with the URL above, and send it a test.</p>
                <Link to="/webhooks">To the webhooks</Link>
              </Empty>
            </Panel>
          )
        }
      </Show>
    </Page>
  );
}

function Letter({ one }: { one: Received }) {
  const [isOpen, setOpen] = useState(false);
  const [tone, word] = SIGNATURES[one.signature];
  return (
    <details
      class="panel webhooks-letter"
      open={isOpen}
      onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}
    >
      <summary>
        <strong>{one.event ?? "something"}</strong> to <code>{one.name}</code> <Badge tone={tone}>{word}</Badge>{" "}
        {one.answered >= 300 && <Badge tone="warn">answered {one.answered}</Badge>}{" "}
        <span class="soft">
          <Ago at={one.at} />, {bytes(one.size)}
        </span>
      </summary>
      {isOpen && (
        <>
          {one.reason && <p class="wrong">{one.reason}</p>}
          <h3>Headers</h3>
          <Headers label={`Headers of ${one.number}`} told={one.headers} />
          <h3>Body</h3>
          <Text label={`Body of ${one.number}`} text={pretty(one.body)} />
        </>
      )}
    </details>
  );
}
