// The overview: what needs attention, and the state of the system. The board's stream keeps it up to date.

import { useEffect } from "preact/hooks";
import { get, session } from "../api";
import { board, liveness, refresh, useLoaded } from "../live";
import { Badge, Copy, Credits, Empty, Page, Panel, Skeleton, Tile } from "../parts/basics";
import { chosenTenant } from "../parts/frame";
import { BusyQueues } from "../parts/queues";
import { Table } from "../parts/table";
import { Trends } from "../parts/trends";
import { type Changes, Link, part } from "../router";
import type { Alarm, Board, JobSummaries, KindInfo, Kinds } from "../wire";
import { count, number, plural, span } from "../words";
import { FailureTable } from "./failures";
import "./overview.css";

export function Overview() {
  const now = board.value;
  const isManual = liveness.value === "manual";
  useEffect(() => {
    if (isManual && !now) refresh();
  }, [isManual]);
  return <Page title="Overview">{now ? <Whole now={now} /> : <Skeleton lines={8} />}</Page>;
}

function Whole({ now }: { now: Board }) {
  const isOfOne = Boolean(session.value?.tenant ?? chosenTenant().tenant); // queues and workers serve all tenants
  return (
    <>
      <Verdict now={now} />
      <Tiles now={now} />
      <FirstSteps now={now} />
      <Trends />
      {!isOfOne && (
        <Panel title="Queues" class="overview-queues">
          <BusyQueues queues={now.queues} />
        </Panel>
      )}
      <div class="grid overview-last">
        <Panel title="Failures in the last hour" aside={<Link to="/failures">All failures</Link>}>
          <FailureTable failures={now.failures} isShort empty={<Empty title="No failures in the last hour." />} />
        </Panel>
        <div>
          {!isOfOne && <Workers now={now} />}
          <Spenders now={now} />
        </div>
      </div>
    </>
  );
}

// The status

type Subject = Alarm["subject"];

const PLACES: Record<Subject["type"], (subject: Subject) => { to: string; query?: Changes }> = {
  queue: ({ id }) => ({ to: "/kinds", query: { queue: id } }),
  worker: ({ id }) => ({ to: `/fleet/${part(id)}` }),
  endpoint: ({ id, tenant }) => ({ to: `/webhooks/${part(id)}`, query: { of: tenant } }),
  schedule: ({ id }) => ({ to: `/schedules/${part(id)}` }),
  failure: ({ id }) => ({ to: `/failures/${part(id)}` }),
  hold: ({ id }) => ({ to: `/kinds/${part(id)}` }),
};

function Verdict({ now }: { now: Board }) {
  const critical = now.alarms.filter((alarm) => alarm.level === "bad").length;
  const warnings = now.alarms.length - critical;
  const tone = critical ? "bad" : warnings ? "warn" : "good";
  return (
    <section class={`overview-verdict ${tone}`} aria-label="Status">
      <p role="status">
        <strong>{inWords(critical, warnings, now.failed_1h)}</strong>{" "}
        <span class="overview-state">{now.alarms.length ? "" : stateOf(now)}</span>
      </p>
      {now.alarms.length > 0 && (
        <ul>
          {now.alarms.map((alarm) => (
            <li key={`${alarm.subject.type} ${alarm.subject.id} ${alarm.text}`}>
              <Badge tone={alarm.level}>{alarm.subject.type}</Badge>{" "}
              <Link {...PLACES[alarm.subject.type](alarm.subject)}>{alarm.text}</Link>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** "All systems normal" requires that no job failed in the last hour. */
function inWords(critical: number, warnings: number, failed: number): string {
  const total = critical + warnings;
  if (total) {
    const detail = critical ? ` (${critical} critical)` : "";
    return `${plural(total, "problem")}${detail} ${total === 1 ? "needs" : "need"} attention.`;
  }
  return failed ? "No problems need attention." : "All systems normal.";
}

function stateOf(now: Board): string {
  const queued = now.ready
    ? `${plural(now.ready, "job")} queued, the oldest for ${span(now.oldest_wait_seconds)}`
    : "No jobs queued";
  const lately = `${count(now.succeeded_1h)} succeeded${now.failed_1h ? ` and ${count(now.failed_1h)} failed` : ""} in the last hour`;
  return `${queued}; ${count(now.leased)} running; ${lately}.`;
}

// The numbers

function Tiles({ now }: { now: Board }) {
  const share = now.ended_1h ? Math.round((100 * now.failed_1h) / now.ended_1h) : 0;
  const later = now.waiting + now.parked;
  const oldest = now.queues.reduce<(typeof now.queues)[number] | null>(
    (oldest, queue) => ((queue.oldest_wait_seconds ?? -1) > (oldest?.oldest_wait_seconds ?? -1) ? queue : oldest),
    null,
  );
  return (
    <div class="tiles overview-tiles">
      <Tile
        label="Queued"
        value={count(now.ready)}
        note={later ? `and ${count(later)} waiting or parked` : "ready to run"}
        tone={now.ready ? "info" : "quiet"}
        to="/jobs"
        query={{ phase: "ready", ...chosenTenant() }}
      />
      <Tile
        label="Running"
        value={count(now.leased)}
        note={now.slots === null ? "jobs" : `${count(now.slots_used ?? 0)} of ${number(now.slots)} worker slots in use`}
        tone={now.leased ? "main" : "quiet"}
        to="/jobs"
        query={{ phase: "leased", ...chosenTenant() }}
      />
      <Tile
        label="Failed, 1 h"
        value={count(now.failed_1h)}
        note={now.failed_1h ? `${share || "< 1"} % of ${count(now.ended_1h)} ended` : `of ${count(now.ended_1h)} ended`}
        tone={now.failed_1h ? "bad" : "good"}
        to="/failures"
        query={{ since: "1h", ...chosenTenant() }}
      />
      <Tile
        label="Oldest wait"
        value={span(now.oldest_wait_seconds)}
        note={oldest?.oldest_wait_seconds == null ? "no jobs queued" : `in ${oldest.queue}`}
        to="/kinds"
        query={oldest?.oldest_wait_seconds == null ? chosenTenant() : { queue: oldest.queue, ...chosenTenant() }}
      />
      <Tile
        label="Webhooks retrying"
        value={count(now.webhooks_failing)}
        note={`${count(now.webhooks_pending)} pending`}
        tone={now.webhooks_failing ? "warn" : "quiet"}
        to="/webhooks"
        query={{ tab: "deliveries", ...chosenTenant() }}
      />
      <Tile
        label="Credits held"
        value={count(now.held)}
        note="for unfinished jobs"
        to="/credits"
        query={{ tab: "holds", ...chosenTenant() }}
      />
      <Tile label="Captured, 1 h" value={count(now.captured_1h)} note="credits" to="/credits" query={chosenTenant()} />
    </div>
  );
}

function Workers({ now }: { now: Board }) {
  const { ok, draining, deaf, unready, unapproved, lost } = now.workers;
  const isNone = !(ok + draining + deaf + unready + unapproved + lost);
  return (
    <Panel title="Workers" aside={<Link to="/fleet">All workers</Link>}>
      {isNone ? (
        <p>
          No worker is running, so jobs wait. Start one: <code>millpond worker app.py</code>.
        </p>
      ) : (
        <p class="overview-workers">
          <Badge tone="good">{plural(ok, "worker")} ok</Badge>
          {draining > 0 && <Badge tone="info">{count(draining)} draining</Badge>}
          {unapproved > 0 && <Badge tone="warn">{count(unapproved)} waiting for approval</Badge>}
          {unready > 0 && <Badge tone="bad">{count(unready)} unready</Badge>}
          {deaf > 0 && (
            <Badge tone="bad" title="Sends heartbeats but does not poll although jobs wait">
              {count(deaf)} not polling
            </Badge>
          )}
          {lost > 0 && (
            <Badge tone="bad" title="Sends no heartbeats. Its jobs return to the queue when their leases expire.">
              {count(lost)} lost
            </Badge>
          )}
        </p>
      )}
    </Panel>
  );
}

function Spenders({ now }: { now: Board }) {
  return (
    <Panel title="Tenants by spend, 1 h" aside={<Link to="/credits">Wallets</Link>}>
      <Table
        label="Tenants by spend"
        rows={now.tenants}
        keyOf={(row) => row.tenant}
        empty={<p class="soft">No credits were spent in the last hour.</p>}
        columns={[
          {
            name: "tenant",
            head: "Tenant",
            cell: (row) => (
              <Link to="/jobs" query={{ tenant: row.tenant, since: "1h" }}>
                {row.tenant}
              </Link>
            ),
          },
          { name: "jobs", head: "Jobs", align: "right", cell: (row) => count(row.jobs) },
          { name: "captured", head: "Captured", align: "right", cell: (row) => <Credits value={row.captured} /> },
        ]}
      />
    </Panel>
  );
}

// Getting started

/** The first steps, shown while there are no jobs. */
function FirstSteps({ now }: { now: Board }) {
  const isQuiet = !(now.ready + now.waiting + now.leased + now.parked + now.delivering + now.ended_1h);
  return isQuiet ? <GetStarted /> : null;
}

/** Whether a job of the kind can be submitted without input. */
function isEasy(kind: KindInfo): boolean {
  return !JSON.stringify(kind.input_schema).includes('"required"');
}

function GetStarted() {
  const asked = { limit: 1, ...chosenTenant() };
  const jobs = useLoaded((signal) => get<JobSummaries>("board/jobs", asked, signal), [asked], { live: false });
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), [], { live: false });
  if (!jobs.value || jobs.value.data.length || jobs.value.next_cursor || !kinds.value) return null;
  const kind = (kinds.value.data.find(isEasy) ?? kinds.value.data[0])?.name;
  const command = `millpond run ${kind ?? "KIND"}`;
  return (
    <Panel title="Get started">
      <ol class="overview-first">
        <li>
          {kind ? (
            <>
              There {kinds.value.data.length === 1 ? "is" : "are"}{" "}
              <Link to="/kinds">{plural(kinds.value.data.length, "kind")}</Link>. A kind is a function with a name and a
              price.
            </>
          ) : (
            <>
              Declare a kind in an app, then start the app: <code>millpond up app.py</code>.
            </>
          )}
        </li>
        <li>
          Submit a job: <code>{command}</code> <Copy text={command} what="command" />, or use the form in the{" "}
          <Link to={kind ? `/playground/${part(kind)}` : "/playground"}>playground</Link>.
        </li>
        <li>Watch the job on this page. The numbers update automatically.</li>
      </ol>
    </Panel>
  );
}
