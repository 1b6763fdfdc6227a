// System: the server process, its database and its configuration.

import { useState } from "preact/hooks";
import { get } from "../api";
import { useLoaded } from "../live";
import { Ago, Badge, Button, Empty, Fact, Facts, ForAll, Instant, Page, Panel, Show, Tile } from "../parts/basics";
import { Table } from "../parts/table";
import type { System as SystemShape } from "../wire";
import { bytes, count, number, span } from "../words";
import "./system.css";

export function System() {
  return (
    <ForAll title="System">
      <Whole />
    </ForAll>
  );
}

function Whole() {
  const found = useLoaded((signal) => get<SystemShape>("system", {}, signal), []);
  return (
    <Page title="System">
      <Show of={found} lines={12}>
        {(system) => (
          <>
            <Health system={system} />
            <div class="grid">
              <Process system={system} />
              <Database system={system} />
            </div>
            <Panel title="Largest tables" aside="row counts are planner estimates">
              <Tables tables={system.tables} />
            </Panel>
            <div class="grid">
              <Slow system={system} />
              <Running system={system} />
            </div>
            <Configuration settings={system.configuration} />
            <Migrations migrations={system.migrations} />
          </>
        )}
      </Show>
    </Page>
  );
}

function Health({ system }: { system: SystemShape }) {
  const failed = system.checks.filter((check) => check.verdict !== "ok");
  return (
    <Panel title="Checks" aside={failed.length ? `${failed.length} of ${system.checks.length} failed` : "all passed"}>
      <ul class="system-checks">
        {[...failed, ...system.checks.filter((check) => check.verdict === "ok")].map((check) => (
          <li key={check.check}>
            <Badge tone={check.verdict === "ok" ? "good" : "bad"}>{check.verdict === "ok" ? "ok" : "failed"}</Badge>
            <span>
              <strong>{check.check}</strong> <span class="soft">{check.detail}</span>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Process({ system }: { system: SystemShape }) {
  return (
    <Panel title="This process">
      <Facts>
        <Fact name="Millpond">{system.version}</Fact>
        <Fact name="Python">{system.python}</Fact>
        <Fact name="Host">{system.host}</Fact>
        <Fact name="Process">{system.pid}</Fact>
        <Fact name="Started">
          <Ago at={system.started_at} />
        </Fact>
        <Fact name="Mode">{system.is_development ? "development" : "production"}</Fact>
      </Facts>
      <h3 class="system-gap">Connections</h3>
      <Table
        label="Connections of this process"
        rows={system.pools}
        keyOf={(pool) => pool.name}
        columns={[
          { name: "name", head: "Pool", cell: (pool) => pool.name },
          { name: "used", head: "In use", align: "right", cell: (pool) => pool.size - pool.idle },
          { name: "open", head: "Open", align: "right", cell: (pool) => pool.size },
          { name: "limit", head: "Limit", align: "right", cell: (pool) => pool.limit },
        ]}
      />
    </Panel>
  );
}

function Database({ system }: { system: SystemShape }) {
  const { database } = system;
  const share = database.connections / database.connections_max;
  return (
    <Panel title="Database">
      <div class="tiles">
        <Tile label="Size" value={bytes(database.size)} />
        <Tile
          label="Connections"
          value={number(database.connections)}
          note={`of ${number(database.connections_max)}`}
          tone={share > 0.8 ? "bad" : share > 0.6 ? "warn" : "good"}
        />
        <Tile
          label="Oldest transaction"
          value={span(database.oldest_transaction_seconds)}
          tone={(database.oldest_transaction_seconds ?? 0) > 300 ? "bad" : "good"}
          note="holds back vacuum"
        />
        <Tile
          label="Cache hit ratio"
          value={database.cache_hit === null ? "–" : `${(database.cache_hit * 100).toFixed(1)} %`}
          tone={database.cache_hit !== null && database.cache_hit < 0.95 ? "warn" : "good"}
        />
      </div>
      <Facts>
        <Fact name="PostgreSQL">{database.version}</Fact>
        <Fact name="Started">
          <Instant at={database.started_at} />
        </Fact>
        <Fact name="Commits">{count(database.commits)}</Fact>
        <Fact name="Rollbacks">{count(database.rollbacks)}</Fact>
        <Fact name="Deadlocks">{number(database.deadlocks)}</Fact>
        <Fact name="Temporary files">{bytes(database.temporary_bytes)}</Fact>
      </Facts>
      {system.tenant_databases.length > 0 && (
        <p class="system-gap">
          Tenants in other databases:{" "}
          {system.tenant_databases.map((database) => (
            <Badge key={database.tenants.join()} tone={database.is_up ? "good" : "bad"}>
              {database.tenants.join(", ")}
            </Badge>
          ))}
        </p>
      )}
    </Panel>
  );
}

function Tables({ tables }: { tables: SystemShape["tables"] }) {
  return (
    <Table
      label="Tables"
      rows={tables}
      keyOf={(table) => table.table}
      columns={[
        { name: "table", head: "Table", cell: (table) => <code>{table.table}</code> },
        { name: "bytes", head: "With indexes", align: "right", cell: (table) => bytes(table.bytes) },
        { name: "rows", head: "Rows", align: "right", cell: (table) => `~${count(table.rows)}` },
        { name: "dead", head: "Dead", align: "right", cell: (table) => count(table.dead) },
        { name: "vacuum", head: "Vacuumed", hide: "narrow", cell: (table) => <Ago at={table.vacuumed_at} /> },
      ]}
    />
  );
}

function Slow({ system }: { system: SystemShape }) {
  return (
    <Panel title="Slow statements" aside="by total time">
      <Table
        label="Slow statements"
        rows={system.slow}
        keyOf={(query) => query.query + query.calls}
        columns={[
          { name: "query", head: "Statement", cell: (query) => <code class="system-query">{query.query}</code> },
          { name: "calls", head: "Calls", align: "right", cell: (query) => count(query.calls) },
          { name: "mean", head: "Mean", align: "right", cell: (query) => span(query.mean_ms / 1000) },
          { name: "total", head: "Total", align: "right", cell: (query) => span(query.total_ms / 1000) },
        ]}
        empty={<Empty title="No data.">{system.slow_reason ?? "No slow statements were recorded."}</Empty>}
      />
    </Panel>
  );
}

function Running({ system }: { system: SystemShape }) {
  return (
    <Panel title="Running for more than a second">
      <Table
        label="Running statements"
        rows={system.running}
        keyOf={(query) => String(query.pid)}
        toneOf={(query) => (query.seconds > 60 ? "bad" : "warn")}
        columns={[
          { name: "query", head: "Statement", cell: (query) => <code class="system-query">{query.query}</code> },
          { name: "state", head: "State", cell: (query) => query.state },
          { name: "seconds", head: "Duration", align: "right", cell: (query) => span(query.seconds) },
        ]}
        empty={<Empty title="No long-running statements." />}
      />
    </Panel>
  );
}

/** Shows the changed settings first, because those are what operators look for. */
function Configuration({ settings }: { settings: SystemShape["configuration"] }) {
  const [isWhole, setWhole] = useState(false);
  const changed = settings.filter((setting) => setting.source !== "default" || (setting.is_secret && setting.value));
  return (
    <Panel
      title="Configuration"
      aside={
        <>
          secrets are never shown
          <Button tone="small" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
            {isWhole ? "Changed settings only" : `All ${settings.length} settings`}
          </Button>
        </>
      }
    >
      <Table
        label="Configuration"
        rows={isWhole ? settings : changed}
        empty={<Empty title="All settings have their default values." />}
        keyOf={(setting) => setting.name}
        columns={[
          { name: "name", head: "Setting", cell: (setting) => <code>{setting.name}</code> },
          {
            name: "value",
            head: "Value",
            cell: (setting) =>
              setting.is_secret ? (
                <Badge>{setting.value === null ? "not set" : "set"}</Badge>
              ) : (
                <code>{setting.value === null ? "–" : String(setting.value)}</code>
              ),
          },
          {
            name: "source",
            head: "Source",
            cell: (setting) => <span class={setting.source === "default" ? "soft" : ""}>{setting.source}</span>,
          },
        ]}
      />
    </Panel>
  );
}

function Migrations({ migrations }: { migrations: SystemShape["migrations"] }) {
  return (
    <Panel title="Migrations">
      <Table
        label="Migrations"
        rows={[...migrations].reverse()}
        keyOf={(migration) => `${migration.number}${migration.name}`}
        columns={[
          { name: "number", head: "No.", cell: (migration) => String(migration.number).padStart(4, "0") },
          { name: "name", head: "Name", cell: (migration) => migration.name },
          { name: "at", head: "Applied", cell: (migration) => <Instant at={migration.applied_at} /> },
        ]}
      />
    </Panel>
  );
}
