// Failures: failed jobs grouped by fingerprint, and a retry of a whole group after its cause is fixed.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { get } from "../api";
import { useLoaded } from "../live";
import { Ago, Badge, Button, Credits, Empty, Fact, Facts, Id, Page, Panel, Show, StateBadge } from "../parts/basics";
import { bulk, forbidden } from "../parts/bulk";
import { Spark } from "../parts/chart";
import { chosenTenant } from "../parts/frame";
import { type Choice, chosen, LENGTHS, Spans } from "../parts/spans";
import { type Column, Pager, Table } from "../parts/table";
import { Traceback, tracebackOf } from "../parts/traceback";
import { go, Link, part, place, setQuery } from "../router";
import type { Failure, Failures as Groups, JobDetail, JobSummaries } from "../wire";
import { count, plural } from "../words";
import "./failures.css";

const SINCE: Choice = { name: "since", choices: ["1h", "24h", "7d", "30d"], preset: "24h" };

export function Failures({ fingerprint }: { fingerprint?: string }) {
  return fingerprint ? <Group fingerprint={fingerprint} /> : <List />;
}

function useGroups(kind?: string) {
  const since = chosen(SINCE);
  const asked = { since, kind: kind ?? place.value.query.get("kind"), ...chosenTenant() };
  return { since, groups: useLoaded((signal) => get<Groups>("failures", asked, signal), [asked]) };
}

function List() {
  const { since, groups } = useGroups();
  const kind = place.value.query.get("kind");
  return (
    <Page
      title="Failures"
      aside={
        kind && (
          <Badge>
            {kind}{" "}
            <button type="button" class="copy" aria-label="Show all kinds" onClick={() => setQuery({ kind: null })}>
              ✕
            </button>
          </Badge>
        )
      }
      acts={<Spans of={SINCE} label="Time range" />}
    >
      <Panel>
        <Show of={groups} lines={6}>
          {(found) => (
            <>
              {found.data.length > 0 && <Sum groups={found} since={since} />}
              <FailureTable failures={found.data} empty={<None since={since} />} />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

function Sum({ groups, since }: { groups: Groups; since: string }) {
  const jobs = groups.data.reduce((sum, group) => sum + group.count, 0);
  const released = groups.data.reduce((sum, group) => sum + group.released, 0);
  return (
    <p class="soft failures-sum">
      {plural(jobs, "job")} failed in the last {LENGTHS[since]}, in {plural(groups.data.length, "group")}. Failures
      whose messages differ only in numbers and names form one group. <Credits value={released} /> were released.
    </p>
  );
}

function None({ since }: { since: string }) {
  return (
    <Empty title={`No failures in the last ${LENGTHS[since]}.`}>
      Failed jobs are grouped by kind, error code and message. After you fix the cause, you can retry all jobs of a
      group.
    </Empty>
  );
}

interface FailureTableProps {
  failures: readonly Failure[];
  empty?: ComponentChildren;
  /** Fewer columns, for a panel of another page. */
  isShort?: boolean;
}

export function FailureTable({ failures, empty, isShort = false }: FailureTableProps) {
  const query = { ...chosenTenant(), since: place.value.query.get("since") };
  const columns: Column<Failure>[] = [
    {
      name: "failure",
      head: "Error",
      cell: (row) => (
        <>
          <Link to={`/failures/${part(row.fingerprint)}`} query={query} class="failures-message">
            {row.message || row.code}
          </Link>
          <small class="soft">
            <code>{row.code}</code> in{" "}
            <Link to={`/kinds/${part(row.kind)}`} query={chosenTenant()}>
              {row.kind}
            </Link>
          </small>
        </>
      ),
    },
    {
      name: "when",
      head: "Trend",
      cell: (row) => <Spark values={row.counts} label={`${plural(row.count, "failure")} over time`} />,
    },
    {
      name: "count",
      head: "Jobs",
      align: "right",
      cell: (row) => <strong class="failures-count">{count(row.count)}</strong>,
    },
    { name: "last", head: "Last", cell: (row) => <Ago at={row.last_at} /> },
  ];
  const more: Column<Failure>[] = [
    { name: "first", head: "First", hide: "medium", cell: (row) => <Ago at={row.first_at} /> },
    { name: "tenants", head: "Tenants", align: "right", hide: "narrow", cell: (row) => count(row.tenants) },
    { name: "released", head: "Released", align: "right", cell: (row) => <Credits value={row.released} /> },
    { name: "sample", head: "Example", hide: "narrow", cell: (row) => <Id id={row.sample} /> },
  ];
  return (
    <Table
      label="Failures"
      rows={failures}
      keyOf={(row) => row.fingerprint}
      columns={isShort ? columns : [...columns, ...more]}
      onOpen={(row) => go(`/failures/${part(row.fingerprint)}`, query)}
      empty={empty}
    />
  );
}

// One group

/** The prefix of the fingerprint that counts the failures of a code with too many fingerprints; it is found by code. */
const OTHERS = "others";

type Which = { fingerprint: string } | { kind: string; error: string };

function Group({ fingerprint }: { fingerprint: string }) {
  const { since, groups } = useGroups();
  const group = groups.value?.data.find((each) => each.fingerprint === fingerprint);
  const isOthers = fingerprint.startsWith(OTHERS);
  const which: Which | null = isOthers ? (group ? { kind: group.kind, error: group.code } : null) : { fingerprint };
  return (
    <Page
      title="Failure"
      aside={<code class="soft">{fingerprint}</code>}
      acts={<Spans of={SINCE} label="Time range" />}
    >
      <Panel>
        <Show of={groups}>
          {() =>
            group ? (
              <Details group={group} />
            ) : (
              <p>
                This failure is not among the most frequent ones of the last {LENGTHS[since]}. Select a longer time
                range, or see its jobs below.
              </p>
            )
          }
        </Show>
      </Panel>
      {which && <Retry which={which} since={since} />}
      {which && <Jobs which={which} since={since} />}
    </Page>
  );
}

function Details({ group }: { group: Failure }) {
  return (
    <>
      <p class="failures-title">
        <strong>{group.message || group.code}</strong>
      </p>
      <Facts>
        <Fact name="Kind">
          <Link to={`/kinds/${part(group.kind)}`} query={chosenTenant()}>
            {group.kind}
          </Link>
        </Fact>
        <Fact name="Code">
          <code>{group.code}</code>
        </Fact>
        <Fact name="Jobs">
          <strong>{count(group.count)}</strong> of {plural(group.tenants, "tenant")}
        </Fact>
        <Fact name="Released">
          <Credits value={group.released} />
        </Fact>
        <Fact name="First">
          <Ago at={group.first_at} />
        </Fact>
        <Fact name="Last">
          <Ago at={group.last_at} />
        </Fact>
        <Fact name="Example">
          <Id id={group.sample} />
        </Fact>
        <Fact name="Trend">
          <Spark values={group.counts} label={`${plural(group.count, "failure")} over time`} />
        </Fact>
      </Facts>
      <SampleTraceback id={group.sample} />
    </>
  );
}

/** The traceback of the example, if it is still stored. */
function SampleTraceback({ id }: { id: string }) {
  const sample = useLoaded((signal) => get<JobDetail>(`board/jobs/${part(id)}`, {}, signal), [id]);
  return <Traceback text={sample.value && tracebackOf(sample.value)} />;
}

const OWN = "time";

/** Retries the jobs of the group after its cause is fixed. */
function Retry({ which, since }: { which: Which; since: string }) {
  const id = useId();
  const [picked, setPicked] = useState<string | null>(null);
  const [time, setTime] = useState("");
  const length = picked ?? since;
  const from = length === OWN ? (time ? new Date(time).toISOString() : "") : length;
  const retry = () => bulk("retry", { ...which, since: from, ...chosenTenant() });
  const isIncomplete = length === OWN && !time;
  return (
    <Panel title="Retry all">
      <div class="failures-retry">
        <div class="field">
          <label for={id}>Submitted</label>
          <select id={id} value={length} onChange={(event) => setPicked(event.currentTarget.value)}>
            {SINCE.choices.map((each) => (
              <option key={each} value={each}>
                in the last {LENGTHS[each]}
              </option>
            ))}
            <option value={OWN}>since a time</option>
          </select>
        </div>
        {length === OWN && (
          <div class="field">
            <label for={`${id}-time`}>Since</label>
            <input
              id={`${id}-time`}
              type="datetime-local"
              value={time}
              onInput={(event) => setTime(event.currentTarget.value)}
            />
          </div>
        )}
        <Button tone="main" because={forbidden("retry")} disabled={isIncomplete} onClick={retry}>
          Retry all since …
        </Button>
        <p class="soft">
          The dialog shows the number of matching jobs before you confirm. The retry runs as a bulk operation, which you
          can abort.
        </p>
      </div>
    </Panel>
  );
}

function Jobs({ which, since }: { which: Which; since: string }) {
  const cursor = place.value.query.get("cursor");
  const asked = { ...which, since, cursor, limit: 20, ...chosenTenant() };
  const summaries = useLoaded((signal) => get<JobSummaries>("board/jobs", asked, signal), [asked]);
  return (
    <Panel
      title="Jobs"
      aside={
        <Link to="/jobs" query={{ ...which, since, ...chosenTenant() }}>
          Open in jobs
        </Link>
      }
    >
      <Show of={summaries}>
        {(page) => (
          <>
            <Table
              label="Jobs with this failure"
              rows={page.data}
              keyOf={(row) => row.id}
              onOpen={(row) => go(`/jobs/${part(row.id)}`, { of: row.tenant })}
              empty={<Empty title={`No jobs with this failure in the last ${LENGTHS[since]}.`} />}
              columns={[
                { name: "id", head: "Job", cell: (row) => <Id id={row.id} tenant={row.tenant} /> },
                {
                  name: "state",
                  head: "State",
                  cell: (row) => <StateBadge state={row.state} phase={row.phase} outcome={row.outcome} />,
                },
                { name: "message", head: "Message", cell: (row) => row.error_message ?? row.error_code },
                { name: "who", head: "Account", cell: (row) => `${row.tenant} / ${row.account}` },
                { name: "attempts", head: "Attempts", align: "right", hide: "narrow", cell: (row) => row.attempts },
                {
                  name: "price",
                  head: "Released",
                  align: "right",
                  cell: (row) => <Credits value={row.price - (row.captured ?? 0)} />,
                },
                { name: "when", head: "Failed", cell: (row) => <Ago at={row.finished_at} /> },
              ]}
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}
