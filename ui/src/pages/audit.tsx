// Audit: who did what, and to what.

import { get } from "../api";
import { useLoaded } from "../live";
import { Empty, Id, Instant, Page, Panel, Show } from "../parts/basics";
import { Field } from "../parts/forms";
import { chosenTenant } from "../parts/frame";
import { Pager, Table } from "../parts/table";
import { Link, part, place, setQuery } from "../router";
import type { AuditEntry, Audit as AuditPage } from "../wire";
import { plain } from "../words";

const FILTERS = [
  { name: "actor", label: "Actor", placeholder: "key_…" },
  { name: "action", label: "Action", placeholder: "key." },
  { name: "subject", label: "Subject", placeholder: "job_…" },
  { name: "since", label: "Since", placeholder: "24h" },
] as const;

export function Audit() {
  const { query } = place.value;
  const filters = Object.fromEntries(FILTERS.map(({ name }) => [name, query.get(name)]));
  const asked = { ...chosenTenant(), ...filters, cursor: query.get("cursor") };
  const found = useLoaded((signal) => get<AuditPage>("audit", asked, signal), [asked]);
  const isFiltered = Object.values(filters).some(Boolean);
  return (
    <Page
      title="Audit"
      aside={
        <span class="soft">append-only log of operator actions in the dashboard, the API and the command line</span>
      }
    >
      <Panel>
        <search class="filters">
          {FILTERS.map((filter) => (
            <Field
              key={filter.name}
              {...filter}
              value={query.get(filter.name) ?? ""}
              onInput={(value) => setQuery({ [filter.name]: value, cursor: null })}
            />
          ))}
        </search>
        <Show of={found} lines={8}>
          {(page) => (
            <>
              <Table<AuditEntry>
                label="Operator actions"
                rows={page.data}
                keyOf={(row) => row.id}
                columns={[
                  { name: "at", head: "Time", cell: (row) => <Instant at={row.at} /> },
                  { name: "actor", head: "Actor", cell: (row) => <Actor id={row.actor} /> },
                  { name: "action", head: "Action", cell: (row) => <strong>{plain(row.action)}</strong> },
                  {
                    name: "subject",
                    head: "Subject",
                    cell: (row) => (row.subject ? <Subject id={row.subject} tenant={row.tenant} /> : "–"),
                  },
                  { name: "tenant", head: "Tenant", hide: "medium", cell: (row) => row.tenant ?? "–" },
                  { name: "data", head: "Details", hide: "narrow", cell: (row) => <More data={row.data} /> },
                ]}
                empty={
                  <Empty title={isFiltered ? "No entries match these filters." : "No entries yet."}>
                    Every operator action is recorded here with its actor and subject.
                  </Empty>
                }
              />
              <Pager next={page.next_cursor} />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

function Actor({ id }: { id: string }) {
  return id.startsWith("key_") ? (
    <Link to="/access" query={{ key: id }} title={id}>
      <code>{`${id.slice(0, 8)}…${id.slice(-5)}`}</code>
    </Link>
  ) : (
    <code>{id}</code>
  );
}

function Subject({ id, tenant }: { id: string; tenant: string | null }) {
  return /^[a-z]+_[0-9a-z]{26}$/.test(id) ? (
    <Id id={id} tenant={tenant} />
  ) : tenant ? (
    <Link to={`/access/${part(tenant)}`}>{id}</Link>
  ) : (
    <span>{id}</span>
  );
}

function More({ data }: { data: unknown }) {
  if (data === null || data === undefined) return <span class="soft">–</span>;
  const text = JSON.stringify(data);
  if (text.length <= 60) return <code>{text}</code>;
  return (
    <details>
      <summary>
        <code>{text.slice(0, 50)}…</code>
      </summary>
      <pre>{JSON.stringify(data, null, 2)}</pre>
    </details>
  );
}
