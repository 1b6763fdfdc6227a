// Webhooks: endpoints, deliveries with their attempts, and resending.

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
  Instant,
  Page,
  Panel,
  Show,
  Tabs,
  Tile,
  type Tone,
} from "../parts/basics";
import { ask, showSecret } from "../parts/dialogs";
import { Field, type FieldSpec } from "../parts/forms";
import { chosenTenant } from "../parts/frame";
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
import { bytes, count, localTime, plain, span } from "../words";
import "./webhooks.css";

const EVENTS = [
  ...["job.submitted", "job.queued", "job.started", "job.requeued", "job.parked", "job.answered", "job.delivering"],
  ...["job.succeeded", "job.failed", "job.canceled", "job.expired", "job.blocked", "job.retried"],
  ...["batch.completed", "endpoint.disabled"],
] as const;
const ENDS: readonly string[] = ["job.succeeded", "job.failed", "job.canceled", "job.expired", "job.blocked"];
const STATES: Record<string, Tone> = { delivered: "good", failed: "bad", pending: "info", withdrawn: "quiet" };
const SMALL_PAGE = 25;

/** The tenant of the endpoint or delivery on a page: from the URL, otherwise the selected tenant. */
function owner(): { tenant?: string } {
  const of = place.value.query.get("of");
  return of ? { tenant: of } : chosenTenant();
}

// The lists

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
            Create endpoint
          </Button>
        </>
      }
    >
      <Tabs
        label="Section"
        chosen={tab}
        onChoose={(name) => go("/webhooks", { ...chosenTenant(), tab: name === "endpoints" ? null : name })}
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
  const query = { ...chosenTenant(), cursor, limit: SMALL_PAGE };
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
    <Empty title="No webhook endpoints yet.">
      <p>
        A webhook endpoint is a URL of a tenant that receives signed events about its jobs. Failed deliveries are
        retried.
      </p>
      <pre class="webhooks-command">millpond webhooks endpoints create https://acme.example/hooks --tenant acme</pre>
      {session.value?.is_development && (
        <p>
          In development, <code>{inbox("name")}</code> accepts any webhook, and the <Link to="/inbox">inbox</Link> shows
          it.
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
        {endpoint.url ?? "pull only"}
      </Link>
    ),
  },
  { name: "events", head: "Events", hide: "medium", cell: (endpoint) => <Events names={endpoint.events} /> },
  { name: "state", head: "State", cell: (endpoint) => <EndpointState endpoint={endpoint} /> },
  {
    name: "share",
    head: "Delivered, 24 h",
    align: "right",
    cell: (endpoint) => <Statistic endpoint={endpoint} format={(stats) => share(stats)} />,
  },
  {
    name: "p90",
    head: "Response time (p90)",
    align: "right",
    hide: "narrow",
    cell: (endpoint) => <Statistic endpoint={endpoint} format={(stats) => span(stats.seconds_p90)} />,
  },
  {
    name: "failing",
    head: "Failing since",
    cell: (endpoint) => <Ago at={endpoint.failing_since} none="–" />,
  },
];

function Events({ names }: { names: readonly string[] }) {
  if (names.includes("*")) return <>all events</>;
  if (names.length === ENDS.length && ENDS.every((name) => names.includes(name))) return <>all that end a job</>;
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
  return <Badge tone="good">active</Badge>;
}

/** The share of settled deliveries that succeeded. */
function share(stats: EndpointStats): string {
  const ended = stats.delivered + stats.failed;
  return ended ? `${((stats.delivered / ended) * 100).toFixed(stats.failed ? 1 : 0)} %` : "–";
}

const known = new Map<string, Promise<EndpointStats>>();

/** The statistics of an endpoint, cached for some seconds, so that all cells of a row share one request. */
function statsOf(endpoint: EndpointInfo): Promise<EndpointStats> {
  const asked =
    known.get(endpoint.id) ?? get<EndpointStats>(`endpoints/${part(endpoint.id)}/stats`, { tenant: endpoint.tenant });
  if (!known.has(endpoint.id)) {
    known.set(endpoint.id, asked);
    setTimeout(() => known.delete(endpoint.id), 15_000);
  }
  return asked;
}

function Statistic({ endpoint, format }: { endpoint: EndpointInfo; format: (stats: EndpointStats) => string }) {
  const stats = useLoaded(() => statsOf(endpoint), [endpoint.id]);
  return <span class="numeric">{stats.value ? format(stats.value) : stats.problem ? "?" : "…"}</span>;
}

// Actions on endpoints

function eventBoxes(chosen: readonly string[]): ComponentChildren {
  const isAll = chosen.includes("*");
  return (
    <fieldset class="webhooks-events">
      <legend>Events</legend>
      <label>
        <input type="checkbox" name="event *" defaultChecked={isAll} /> all events, including future ones
      </label>
      {EVENTS.map((name) => (
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
    ...(own
      ? []
      : [{ name: "tenant", label: "Tenant", required: true, hint: "The tenant whose job events are sent." }]),
    {
      name: "url",
      label: "URL",
      placeholder: "https://acme.example/hooks",
      hint: session.value?.is_development
        ? `Leave empty to pull events instead of receiving requests. For a test, use ${inbox("try")}`
        : "Leave empty to pull events instead of receiving requests.",
    },
    { name: "kinds", label: "Kinds", hint: "Names separated by spaces. Leave empty for all kinds." },
    { name: "description", label: "Description", hint: "Describes what the endpoint is used for." },
  ];
  return ask({
    title: "Create endpoint",
    text: eventBoxes(ENDS),
    action: "Create",
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
      showEndpointSecret(made, "Requests to the endpoint are signed with this secret.");
      go(`/webhooks/${part(made.id)}`, { of: made.tenant });
    },
  });
}

function showEndpointSecret(made: NewEndpoint, text: string): void {
  showSecret("Endpoint secret", `${text} It is shown only once; configure the receiver with it now.`, made.secret);
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
    title: "Edit endpoint",
    text: (
      <>
        <p>Changes apply to new and pending deliveries.</p>
        {eventBoxes(endpoint.events)}
      </>
    ),
    action: "Save",
    fields: [
      ...(endpoint.url === null
        ? []
        : [{ name: "url", label: "URL", value: endpoint.url, required: true, monospace: true }]),
      {
        name: "kinds",
        label: "Kinds",
        value: endpoint.kinds.join(" "),
        hint: "Names separated by spaces. Leave empty for all kinds.",
      },
      { name: "description", label: "Description", value: endpoint.description },
      {
        name: "limit",
        label: "Concurrent requests",
        type: "number",
        value: endpoint.limit ?? "",
        hint: "Leave empty for the server's limit.",
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
      toast("Endpoint saved.");
      reload();
    },
  });
}

function testEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Send a test event?",
    text: `An event of a fictitious job is sent to ${endpoint.url ?? "the pull queue"}. It is signed like any other and listed with the deliveries.`,
    action: "Send test",
    fields: [{ name: "event", label: "Event", type: "select", options: EVENTS, value: "job.succeeded" }],
    act: async ({ event }) => {
      const made = await request<Delivery>(endpoint, "POST", "/test", { event });
      toast("Test event queued.");
      reload();
      go(`/deliveries/${part(made.id)}`, { of: made.tenant });
    },
  });
}

function rotateEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Rotate the endpoint secret?",
    text: "The new secret is shown only once. During the overlap, requests are signed with both secrets, so that the receiver can switch without losing events.",
    action: "Rotate",
    fields: [
      {
        name: "overlap",
        label: "Overlap: how long the old secret stays in use",
        value: "24h",
        required: true,
        hint: "For example 15m, 24h or 7d; at most 30d. Enter 0 for no overlap.",
      },
    ],
    act: async ({ overlap }) => {
      const made = await request<NewEndpoint>(endpoint, "POST", "/rotate", {
        overlap: Number(overlap) === 0 ? 0 : overlap,
      });
      showEndpointSecret(made, "Requests are now signed with this secret.");
      reload();
    },
  });
}

function disableEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Disable the endpoint?",
    text: "Nothing is sent until the endpoint is enabled again. Pending deliveries wait, and fail when their retry period ends.",
    action: "Disable",
    tone: "bad",
    fields: [{ name: "reason", label: "Reason", hint: "Shown on the endpoint and in the audit log." }],
    act: async ({ reason }) => {
      await request(endpoint, "POST", "/disable", reason ? { reason } : {});
      toast("Endpoint disabled.");
      reload();
    },
  });
}

function enableEndpoint({ endpoint, reload }: ActProps) {
  return ask({
    title: "Enable the endpoint?",
    text: "Sending resumes with the pending deliveries. Failed deliveries are not resent automatically: use “Resend failed”.",
    action: "Enable",
    act: async () => {
      await request(endpoint, "POST", "/enable");
      toast("Endpoint enabled.");
      reload();
    },
  });
}

function resendSince({ endpoint, reload }: ActProps) {
  const since = endpoint.failing_since ? new Date(endpoint.failing_since) : new Date(Date.now() - 24 * 3_600_000);
  return ask({
    title: "Resend deliveries?",
    text: "Each delivery keeps its webhook-id, so that receivers can ignore duplicates.",
    action: "Resend",
    fields: [
      { name: "since", label: "Since", type: "datetime-local", value: localTime(since), required: true },
      {
        name: "what",
        label: "Deliveries",
        type: "select",
        value: "failed",
        options: [
          { value: "failed", label: "failed deliveries only" },
          { value: "all", label: "all deliveries, including successful ones" },
        ],
      },
    ],
    act: async (values) => {
      const resent = await request<Resent>(endpoint, "POST", "/resend", {
        since: new Date(values["since"] ?? "").toISOString(),
        only_failed: values["what"] !== "all",
      });
      toast(resent.count ? `Resending ${count(resent.count)} deliveries.` : "No failed deliveries since then.");
      reload();
    },
  });
}

function deleteEndpoint({ endpoint }: ActProps) {
  return ask({
    title: "Delete the endpoint?",
    text: `Nothing more is sent to ${endpoint.url ?? "this endpoint"}, including pending deliveries. Its past deliveries remain visible. This cannot be undone.`,
    action: "Delete",
    tone: "bad",
    act: async () => {
      await request(endpoint, "DELETE", "");
      toast("Endpoint deleted.");
      go("/webhooks", chosenTenant());
    },
  });
}

function Acts(props: ActProps) {
  const because = refusal("operator");
  const isOff = Boolean(props.endpoint.disabled_at);
  const off = isOff ? "The endpoint is disabled." : undefined;
  const acts: readonly [string, (props: ActProps) => unknown, string | undefined, "plain" | "bad"][] = [
    ["Send test", testEndpoint, because ?? off, "plain"],
    ["Resend failed", resendSince, because ?? off, "plain"],
    ["Edit", changeEndpoint, because, "plain"],
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
      title={endpoint ? (endpoint.url ?? "Pull endpoint") : "Endpoint"}
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
            <strong>Disabled</strong> since <Instant at={endpoint.disabled_at} />
            {endpoint.disabled_reason && `: ${plain(endpoint.disabled_reason)}`}.
          </p>
          <p>Fix the receiver, enable the endpoint, then resend the failed deliveries.</p>
        </div>
      )}
      {!endpoint.disabled_at && endpoint.failing_since && (
        <p class="stale">
          No delivery has succeeded since <Instant at={endpoint.failing_since} />. The latest attempts are listed below,
          with their responses.
        </p>
      )}
      <Show of={stats} lines={2}>
        {(found) => (
          <div class="tiles">
            <Tile
              label="Delivered, 24 h"
              value={share(found)}
              note={`${count(found.delivered)} of ${count(found.delivered + found.failed)}`}
              tone={found.failed ? "warn" : "good"}
            />
            <Tile
              label="Failed"
              value={count(found.failed)}
              tone={found.failed ? "bad" : "quiet"}
              note="no more retries"
            />
            <Tile label="Pending" value={count(found.pending)} note="waiting to be sent" />
            <Tile label="Response time" value={span(found.seconds_p90)} note={`p90; p50 ${span(found.seconds_p50)}`} />
          </div>
        )}
      </Show>
      <Panel title="Details">
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
          <Fact name="Event format">{endpoint.is_native ? "Millpond" : "defined by each kind"}</Fact>
          <Fact name="Concurrent requests">{endpoint.limit ?? "the server's limit"}</Fact>
          <Fact name="Created">
            <Ago at={endpoint.created_at} />
          </Fact>
          <Fact name="Old secret valid until">
            <Instant at={endpoint.rotated_until} none="no old secret" />
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
      : { ...chosenTenant(), endpoint: given.get("endpoint") }),
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

/** A text filter that is applied at Enter, or when the field loses focus. */
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
    <Empty title="No deliveries match this filter." />
  ) : (
    <Empty title="No deliveries yet.">
      <p>A delivery is one event of one job for one receiver. Each is listed here with its attempts.</p>
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
    { name: "tries", head: "Attempts", align: "right", cell: (delivery) => count(delivery.tries) },
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
      head: "Next attempt",
      cell: (delivery) => (delivery.due_at ? <Ago at={delivery.due_at} /> : <span class="soft">–</span>),
    },
    { name: "made", head: "Created", cell: (delivery) => <Ago at={delivery.created_at} /> },
  ];
}

// One delivery

export function DeliveryPage({ id }: { id: string }) {
  const query = owner();
  const found = useLoaded((signal) => get<DeliveryLog>(`deliveries/${part(id)}`, query, signal), [id, query]);
  const delivery = found.value;
  const resend = () =>
    ask({
      title: "Resend the delivery?",
      text: `The delivery is sent to ${delivery?.url ?? "the pull queue"} again with the same id and body and a new signature. Receivers can ignore duplicates by webhook-id.`,
      action: "Resend",
      act: async () => {
        await act("POST", `deliveries/${part(id)}/resend`, undefined, { query });
        toast("Delivery queued.");
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
            because={
              refusal("operator") ?? (delivery.state === "withdrawn" ? "The delivery was withdrawn." : undefined)
            }
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
      <Panel title="Details">
        <Facts>
          <Fact name="Id (webhook-id)">
            <Id id={delivery.id} tenant={delivery.tenant} />
          </Fact>
          <Fact name="Tenant">{delivery.tenant}</Fact>
          <Fact name="URL">{delivery.url ?? "pull only"}</Fact>
          <Fact name="Endpoint">
            {delivery.endpoint_id ? <Id id={delivery.endpoint_id} tenant={delivery.tenant} /> : "the job's own webhook"}
          </Fact>
          <Fact name="Job">
            {delivery.job_id ? <Id id={delivery.job_id} tenant={delivery.tenant} /> : "none (test event)"}
          </Fact>
          <Fact name="Created">
            <Ago at={delivery.created_at} />
          </Fact>
          <Fact name="Next attempt">
            <Ago at={delivery.due_at} none="none" />
          </Fact>
          <Fact name="Settled">
            <Ago at={delivery.settled_at} none="not yet" />
          </Fact>
        </Facts>
      </Panel>
      <Panel title="Body" aside="identical in every attempt">
        {delivery.body === null ? (
          <p class="soft">This server cannot render the body: it does not know the job's kind.</p>
        ) : (
          <Text label="Body" text={pretty(delivery.body)} />
        )}
      </Panel>
      <Panel title="Attempts" aside={count(delivery.log.length)}>
        {delivery.log.length ? (
          [...delivery.log].reverse().map((each, index) => <Try key={each.number} each={each} isOpen={index === 0} />)
        ) : (
          <p class="soft">No attempts yet.</p>
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
        <strong>Attempt {each.number}</strong>{" "}
        <Badge tone={isGood ? "good" : "bad"}>{each.status ?? "no response"}</Badge>{" "}
        {each.error && <span class="wrong">{each.error}</span>}{" "}
        <span class="soft">
          <Instant at={each.at} />, {span(each.seconds)}
        </span>
      </summary>
      {each.url && <p class="soft">POST {each.url}</p>}
      <div class="grid">
        <div>
          <h3>Request headers</h3>
          <Headers label={`Request headers of attempt ${each.number}`} headers={Object.entries(each.request_headers)} />
        </div>
        <div>
          <h3>Response</h3>
          {each.status === null ? (
            <p class="soft">None: {each.error}</p>
          ) : (
            <>
              <Headers
                label={`Response headers of attempt ${each.number}`}
                headers={Object.entries(each.response_headers)}
              />
              <Text label={`Response of attempt ${each.number}`} text={each.response_body || "(no body)"} />
            </>
          )}
        </div>
      </div>
    </details>
  );
}

function Headers({ headers, label }: { headers: readonly (readonly [string, string])[]; label: string }) {
  if (!headers.length) return <p class="soft">none</p>;
  return (
    <section class="table-box webhooks-headers" aria-label={label} tabIndex={0}>
      <dl>
        {headers.map(([name, value], index) => (
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

// The development inbox

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
  good: ["good", "valid signature"],
  bad: ["bad", "invalid signature"],
  unsigned: ["quiet", "unsigned"],
};

/** The URL of an inbox, which is beside the dashboard at the root of the server. */
function inbox(name: string): string {
  return `${location.origin}${ROOT.replace(/\/ui$/, "")}/inbox/${name}`;
}

/** The path of the inbox in the dashboard's API: beside /v1, not below it. */
const INBOX = "../inbox.json";

export function InboxPage() {
  return (
    <ForAll title="Inbox">
      <Inbox />
    </ForAll>
  );
}

function Inbox() {
  const found = useLoaded((signal) => get<{ data: Received[] }>(INBOX, {}, signal), []);
  const isDevelopment = session.value?.is_development;
  if (!isDevelopment)
    return (
      <Page title="Inbox">
        <Empty title="The inbox is available only in development.">
          <p>
            The inbox is part of <code>millpond up</code>. It receives webhooks for testing.
          </p>
        </Empty>
      </Page>
    );
  const clear = () => attempt(() => act("DELETE", INBOX), "Inbox cleared.").then(found.reload);
  return (
    <Page
      title="Inbox"
      aside={<span class="soft">webhooks received in development; kept in memory only</span>}
      acts={
        <Button because={refusal("operator")} onClick={clear}>
          Clear
        </Button>
      }
    >
      <Panel>
        <p>
          Send webhooks to <code>{inbox("any-name")}</code> <Copy text={inbox("try")} what="URL" />. With{" "}
          <code>?status=500</code> it responds with that status, which lets you test failures.
        </p>
      </Panel>
      <Show of={found}>
        {({ data }) =>
          data.length ? (
            data.map((one) => <ReceivedWebhook key={one.number} one={one} />)
          ) : (
            <Panel>
              <Empty title="No webhooks received yet.">
                <p>Create an endpoint with the URL above, and send a test event.</p>
                <Link to="/webhooks">Go to webhooks</Link>
              </Empty>
            </Panel>
          )
        }
      </Show>
    </Page>
  );
}

function ReceivedWebhook({ one }: { one: Received }) {
  const [isOpen, setOpen] = useState(false);
  const [tone, word] = SIGNATURES[one.signature];
  return (
    <details
      class="panel webhooks-letter"
      open={isOpen}
      onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}
    >
      <summary>
        <strong>{one.event ?? "unknown event"}</strong> to <code>{one.name}</code> <Badge tone={tone}>{word}</Badge>{" "}
        {one.answered >= 300 && <Badge tone="warn">responded {one.answered}</Badge>}{" "}
        <span class="soft">
          <Ago at={one.at} />, {bytes(one.size)}
        </span>
      </summary>
      {isOpen && (
        <>
          {one.reason && <p class="wrong">{one.reason}</p>}
          <h3>Headers</h3>
          <Headers label={`Headers of ${one.number}`} headers={one.headers} />
          <h3>Body</h3>
          <Text label={`Body of ${one.number}`} text={pretty(one.body)} />
        </>
      )}
    </details>
  );
}
