// One wallet: its balances, its ledger, and corrections by an admin.

import { act, get, isFreshKey, refusal } from "../api";
import { useLoaded } from "../live";
import { Credits as Amount, Badge, Button, Empty, Id, Instant, Page, Panel, Show, Tile } from "../parts/basics";
import { ask } from "../parts/dialogs";
import { Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { Link, part, place } from "../router";
import type { Entries, Entry, Wallet as WalletShape } from "../wire";
import { number } from "../words";
import { adjust, grant } from "./credits";

const TONES: Record<string, "good" | "main" | "info" | "quiet" | "warn"> = {
  grant: "good",
  adjust: "warn",
  hold: "info",
  capture: "main",
  release: "quiet",
};

/** The reference of an entry. One that the dashboard generated is left out, because it means nothing to people. */
function referenceOf({ reference }: Entry): string | null {
  return reference && isFreshKey(reference) ? null : reference;
}

export function Wallet({ tenant, account }: { tenant: string; account: string }) {
  const { query } = place.value;
  const asked = { tenant, account };
  const cursor = query.get("cursor");
  const wallet = useLoaded((signal) => get<WalletShape>("wallet", asked, signal), [asked]);
  const entries = useLoaded((signal) => get<Entries>("wallet/entries", { ...asked, cursor }, signal), [asked, cursor]);
  const reload = () => {
    wallet.reload();
    entries.reload();
  };
  const because = refusal("admin");
  const now = wallet.value;
  return (
    <Page
      title={account}
      aside={
        <span class="soft">
          wallet of <Link to={`/access/${part(tenant)}`}>{tenant}</Link>
        </span>
      }
      acts={
        <>
          <Link to="/jobs" query={{ tenant, account }} class="button">
            Jobs of this account
          </Link>
          <Button because={because} disabled={!now} onClick={() => now && cap(now, reload)}>
            Limit
          </Button>
          <Button because={because} disabled={!now} onClick={() => now && adjust(now, reload)}>
            Adjust
          </Button>
          <Button tone="main" because={because} disabled={!now} onClick={() => now && grant(now, reload)}>
            Grant
          </Button>
        </>
      }
    >
      <Show of={wallet} lines={2}>
        {(found) => (
          <div class="tiles">
            <Tile label="Available" value={number(found.available)} tone={found.available ? "good" : "warn"} />
            <Tile label="Held" value={number(found.held)} note="for unfinished jobs" />
            <Tile
              label="Active jobs"
              value={number(found.active)}
              note={found.active_max === null ? "no limit" : `limit ${number(found.active_max)}`}
            />
          </div>
        )}
      </Show>
      <Panel title="Ledger" aside="append-only">
        <Show of={entries}>
          {(page) => (
            <>
              <Table<Entry>
                label="Entries"
                rows={page.data}
                keyOf={(row) => String(row.seq)}
                columns={[
                  { name: "seq", head: "No.", align: "right", hide: "narrow", cell: (row) => row.seq },
                  { name: "at", head: "Time", cell: (row) => <Instant at={row.at} /> },
                  {
                    name: "type",
                    head: "Type",
                    cell: (row) => <Badge tone={TONES[row.type] ?? "quiet"}>{row.type}</Badge>,
                  },
                  {
                    name: "available",
                    head: "Available",
                    align: "right",
                    cell: (row) => <Amount value={row.available} sign />,
                  },
                  { name: "held", head: "Held", align: "right", cell: (row) => <Amount value={row.held} sign /> },
                  { name: "after", head: "Balance", align: "right", cell: (row) => number(row.available_after) },
                  {
                    name: "job",
                    head: "Job",
                    cell: (row) =>
                      row.job_id ? <Id id={row.job_id} tenant={tenant} /> : (row.reason ?? referenceOf(row) ?? "–"),
                  },
                  {
                    name: "reason",
                    head: "Reason",
                    hide: "medium",
                    cell: (row) => <span class="soft">{row.job_id ? row.reason : referenceOf(row)}</span>,
                  },
                ]}
                empty={<Empty title="No ledger entries.">Grant credits to this account to get started.</Empty>}
              />
              <Pager next={page.next_cursor} />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

function cap(wallet: WalletShape, done: () => void): Promise<boolean> {
  return ask({
    title: `Limit active jobs of ${wallet.account}`,
    text: "The number of jobs of this account that may be active at the same time. Further submits are rejected and not charged.",
    action: "Set limit",
    fields: [
      {
        name: "active_max",
        label: "Limit of active jobs",
        type: "number",
        min: 0,
        max: 1_000_000,
        value: wallet.active_max ?? "",
        hint: "Leave empty for no limit.",
      },
    ],
    act: async ({ active_max: given }) => {
      const path = `tenants/${encodeURIComponent(wallet.tenant)}/accounts/${encodeURIComponent(wallet.account)}/cap`;
      await act("PUT", path, { active_max: given ? Number(given) : null });
      toast(
        given
          ? `Account ${wallet.account} is limited to ${given} active jobs.`
          : `Account ${wallet.account} has no limit.`,
      );
      done();
    },
  });
}
