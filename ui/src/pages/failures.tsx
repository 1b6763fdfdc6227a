// Failures: what fails, put together by what it has in common, and what to do once the cause is mended.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { get } from "../api";
import { useLoaded } from "../live";
import { Ago, Badge, Button, Credits, Empty, Fact, Facts, Id, Page, Panel, Show, StateBadge } from "../parts/basics";
import { bulk, forbidden } from "../parts/bulk";
import { Spark } from "../parts/chart";
import { whose } from "../parts/frame";
import { type Choice, chosen, LENGTHS, Spans } from "../parts/spans";
import { type Column, Pager, Table } from "../parts/table";
import { go, Link, part, place, setQuery } from "../router";
import type { Failure, Failures as Groups, JobLines } from "../wire";
import { count, plural } from "../words";
import "./failures.css";

const SINCE: Choice = { name: "since", choices: ["1h", "24h", "7d", "30d"], usual: "24h" };

export function Failures({ fingerprint }: { fingerprint?: string }) {
  return fingerprint ? <Group fingerprint={fingerprint} /> : <List />;
}

function useGroups(kind?: string) {
  const since = chosen(SINCE);
  const asked = { since, kind: kind ?? place.value.query.get("kind"), ...whose() };
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
      acts={<Spans of={SINCE} label="How far back" />}
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
      {plural(jobs, "job")} failed in the last {LENGTHS[since]}, for {plural(groups.data.length, "reason")}; failures
      whose messages differ only in numbers and names are one. <Credits value={released} /> went back to their wallets.
    </p>
  );
}

function None({ since }: { since: string }) {
  return (
    <Empty title={`Nothing failed in the last ${LENGTHS[since]}.`}>
      Jobs that fail are put together here by what they have in common. Once the cause is mended, all of a group can be
      run again at once.
    </Empty>
  );
}

interface FailureTableProps {
  failures: readonly Failure[];
  empty?: ComponentChildren;
  /** Only what fits into a corner of another page. */
  isShort?: boolean;
}

export function FailureTable({ failures, empty, isShort = false }: FailureTableProps) {
  const query = { ...whose(), since: place.value.query.get("since") };
  const columns: Column<Failure>[] = [
    {
      name: "failure",
      head: "Failure",
      cell: (row) => (
        <>
          <Link to={`/failures/${part(row.fingerprint)}`} query={query} class="failures-message">
            {row.message || row.code}
          </Link>
          <small class="soft">
            <code>{row.code}</code> in{" "}
            <Link to={`/kinds/${part(row.kind)}`} query={whose()}>
              {row.kind}
            </Link>
          </small>
        </>
      ),
    },
    {
      name: "when",
      head: "When",
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
    { name: "released", head: "Given back", align: "right", cell: (row) => <Credits value={row.released} /> },
    { name: "sample", head: "Sample", hide: "narrow", cell: (row) => <Id id={row.sample} /> },
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

// One of them

/** Failures of one code that differ too much to be told apart are counted as one, and found by their code. */
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
      acts={<Spans of={SINCE} label="How far back" />}
    >
      <Panel>
        <Show of={groups}>
          {() =>
            group ? (
              <Told group={group} />
            ) : (
              <p>
                It is not among the most frequent failures of the last {LENGTHS[since]}. Look further back, or at its
                jobs below.
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

function Told({ group }: { group: Failure }) {
  return (
    <>
      <p class="failures-told">
        <strong>{group.message || group.code}</strong>
      </p>
      <Facts>
        <Fact name="Kind">
          <Link to={`/kinds/${part(group.kind)}`} query={whose()}>
            {group.kind}
          </Link>
        </Fact>
        <Fact name="Code">
          <code>{group.code}</code>
        </Fact>
        <Fact name="Jobs">
          <strong>{count(group.count)}</strong> of {plural(group.tenants, "tenant")}
        </Fact>
        <Fact name="Given back">
          <Credits value={group.released} />
        </Fact>
        <Fact name="First">
          <Ago at={group.first_at} />
        </Fact>
        <Fact name="Last">
          <Ago at={group.last_at} />
        </Fact>
        <Fact name="Sample">
          <Id id={group.sample} />
        </Fact>
        <Fact name="When">
          <Spark values={group.counts} label={`${plural(group.count, "failure")} over time`} />
        </Fact>
      </Facts>
    </>
  );
}

const OWN = "time";

/** After the cause is mended: run again what has failed since. */
function Retry({ which, since }: { which: Which; since: string }) {
  const id = useId();
  const [picked, setPicked] = useState<string | null>(null);
  const [time, setTime] = useState("");
  const length = picked ?? since;
  const from = length === OWN ? (time ? new Date(time).toISOString() : "") : length;
  const order = () => bulk("retry", { ...which, since: from, ...whose() });
  const isUnsaid = length === OWN && !time;
  return (
    <Panel title="Retry all of them">
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
        <Button tone="main" because={forbidden("retry")} disabled={isUnsaid} onClick={order}>
          Retry all since …
        </Button>
        <p class="soft">First you are told how many there are. It runs as an errand, and can be stopped.</p>
      </div>
    </Panel>
  );
}

function Jobs({ which, since }: { which: Which; since: string }) {
  const cursor = place.value.query.get("cursor");
  const asked = { ...which, since, cursor, limit: 20, ...whose() };
  const lines = useLoaded((signal) => get<JobLines>("board/jobs", asked, signal), [asked]);
  return (
    <Panel
      title="Jobs"
      aside={
        <Link to="/jobs" query={{ ...which, since, ...whose() }}>
          Filter and act on them
        </Link>
      }
    >
      <Show of={lines}>
        {(page) => (
          <>
            <Table
              label="Jobs that failed like this"
              rows={page.data}
              keyOf={(row) => row.id}
              onOpen={(row) => go(`/jobs/${part(row.id)}`, { of: row.tenant })}
              empty={<Empty title={`No job failed like this in the last ${LENGTHS[since]}.`} />}
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
                  head: "Given back",
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
