// Credits: who has how much, what is held and for how long, and whether all of it adds up.

import { act, freshKey, get, refusal, session } from "../api";
import { board, useLoaded } from "../live";
import { Ago, Credits as Amount, Button, Empty, Id, Page, Panel, Show, StateBadge, Tabs, Tile } from "../parts/basics";
import { ask } from "../parts/dialogs";
import { Field } from "../parts/forms";
import { whose } from "../parts/frame";
import { Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place, setQuery } from "../router";
import type { Errand, HoldAge, Holds, Wallet, Wallets } from "../wire";
import { count, number, plural, span } from "../words";
import "./credits.css";

export function Credits() {
  const tab = place.value.query.get("tab") ?? "wallets";
  const now = board.value;
  return (
    <Page title="Credits" acts={<Acts />}>
      <div class="tiles">
        <Tile label="Held now" value={now ? number(now.held) : "…"} note="for jobs that have not ended" />
        <Tile label="Captured in the last hour" value={now ? number(now.captured_1h) : "…"} note="paid for results" />
      </div>
      <Tabs
        label="Credits"
        chosen={tab}
        onChoose={(name) => go("/credits", { ...whose(), tab: name === "wallets" ? null : name })}
        tabs={[
          { name: "wallets", title: "Wallets" },
          { name: "holds", title: "Holds by age" },
        ]}
      />
      {tab === "holds" ? <HoldList /> : <WalletList />}
    </Page>
  );
}

function Acts() {
  return (
    <>
      <Button because={refusal("operator", { ofAll: true })} onClick={verify}>
        Verify the books
      </Button>
      <Button tone="main" because={refusal("admin")} onClick={() => grant()}>
        Grant credits
      </Button>
    </>
  );
}

/** Check every invariant as work in the background: it looks at everything, and takes as long as that takes. */
function verify(): Promise<boolean> {
  return ask({
    title: "Verify the books?",
    text: "Every invariant is checked over all jobs, entries and wallets, in the background. Nothing is changed.",
    action: "Verify",
    act: async () => {
      const errand = await act<Errand>("POST", "errands", { action: "verify" });
      go(`/errands/${errand.id}`);
    },
  });
}

const WHOM = { pattern: "[A-Za-z0-9._:@+\\/\\-]+", required: true };

/** Grant or adjust; where the wallet is not known yet, the dialog asks for it. */
export function grant(wallet?: Wallet, done: () => void = () => {}): Promise<boolean> {
  const own = freshKey();
  return ask({
    title: wallet ? `Grant credits to ${wallet.account}` : "Grant credits",
    text: "They are available at once. However often this is sent, it is granted once.",
    action: "Grant",
    fields: [
      { name: "tenant", label: "Tenant", value: wallet?.tenant ?? session.value?.tenant ?? "", ...WHOM },
      { name: "account", label: "Account", value: wallet?.account ?? "", ...WHOM },
      { name: "amount", label: "Credits", type: "number", min: 1, required: true },
      { name: "reason", label: "Reason", required: true, hint: "Stands in the ledger and in the audit." },
      {
        name: "reference",
        label: "Reference",
        hint: "Such as the number of an invoice: it is granted once, whoever sends it. Empty: one is made up.",
      },
    ],
    act: async (given) => {
      const now = await act<Wallet>("POST", "grants", amounts(given, own), { isOnce: true });
      toast(`${now.account} has ${number(now.available)} credits now.`);
      done();
    },
  });
}

export function adjust(wallet: Wallet, done: () => void): Promise<boolean> {
  const own = freshKey();
  return ask({
    title: `Put ${wallet.account} right`,
    text: `It has ${plural(wallet.available, "credit")} available. A correction goes up or down, and is never undone silently: it stands in the ledger.`,
    action: "Adjust",
    tone: "bad",
    fields: [
      { name: "amount", label: "Credits, with a minus to take away", type: "number", required: true },
      { name: "reason", label: "Reason", required: true, hint: "Stands in the ledger and in the audit." },
      { name: "reference", label: "Reference", hint: "It is posted once, however often it is sent." },
    ],
    act: async (given) => {
      const body = { tenant: wallet.tenant, account: wallet.account, ...amounts(given, own) };
      const now = await act<Wallet>("POST", "adjustments", body, { isOnce: true });
      toast(`${now.account} has ${number(now.available)} credits now.`);
      done();
    },
  });
}

/** Each has a reference, that of the dialog if none was typed: what is sent again is posted once. */
function amounts(given: Record<string, string>, own: string): Record<string, unknown> {
  return { ...given, amount: Number(given["amount"]), reference: given["reference"] || own };
}

function WalletList() {
  const { query } = place.value;
  const asked = { ...whose(), prefix: query.get("prefix"), cursor: query.get("cursor") };
  const found = useLoaded((signal) => get<Wallets>("wallets", asked, signal), [asked]);
  return (
    <Panel>
      <search class="filters">
        <Field
          name="prefix"
          label={query.get("tenant") ? "Account begins with" : "Tenant begins with"}
          value={query.get("prefix") ?? ""}
          onInput={(prefix) => setQuery({ prefix, cursor: null })}
        />
      </search>
      <Show of={found}>
        {(wallets) => (
          <>
            <Table<Wallet>
              label="Wallets"
              rows={wallets.data}
              keyOf={(row) => `${row.tenant}/${row.account}`}
              onOpen={(row) => go(`/credits/${part(row.tenant)}/${part(row.account)}`)}
              columns={[
                {
                  name: "account",
                  head: "Account",
                  cell: (row) => (
                    <Link to={`/credits/${part(row.tenant)}/${part(row.account)}`}>
                      <span class="soft">{row.tenant} / </span>
                      {row.account}
                    </Link>
                  ),
                },
                {
                  name: "available",
                  head: "Available",
                  align: "right",
                  cell: (row) => <Amount value={row.available} />,
                },
                { name: "held", head: "Held", align: "right", cell: (row) => <Amount value={row.held} /> },
                {
                  name: "active",
                  head: "Active jobs",
                  align: "right",
                  cell: (row) => (row.active_max === null ? count(row.active) : `${row.active} of ${row.active_max}`),
                },
              ]}
              empty={
                <Empty title={query.get("prefix") ? "None begins like that." : "No wallet yet."}>
                  An account is made by its first grant, or by its first job.
                </Empty>
              }
            />
            <Pager next={wallets.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

function HoldList() {
  const { query } = place.value;
  const asked = { ...whose(), cursor: query.get("cursor") };
  const found = useLoaded((signal) => get<Holds>("holds", asked, signal), [asked]);
  return (
    <Show of={found}>
      {(holds) => (
        <>
          {holds.ages.length > 0 && (
            <Panel title="By age" aside={holds.is_capped ? "of the oldest 10,000 jobs that have not ended" : undefined}>
              <Ages ages={holds.ages} />
            </Panel>
          )}
          <Panel title="The oldest first">
            <Table
              label="Holds"
              rows={holds.data}
              keyOf={(row) => row.job_id}
              onOpen={(row) => go(`/jobs/${row.job_id}`, { of: row.tenant })}
              columns={[
                { name: "job", head: "Job", cell: (row) => <Id id={row.job_id} tenant={row.tenant} /> },
                { name: "kind", head: "Kind", cell: (row) => row.kind },
                {
                  name: "account",
                  head: "Account",
                  hide: "narrow",
                  cell: (row) => (
                    <Link to={`/credits/${part(row.tenant)}/${part(row.account)}`}>
                      <span class="soft">{row.tenant} / </span>
                      {row.account}
                    </Link>
                  ),
                },
                {
                  name: "state",
                  head: "State",
                  cell: (row) => <StateBadge state={row.state} phase={row.phase} outcome={null} />,
                },
                { name: "age", head: "Held for", align: "right", cell: (row) => <Ago at={row.held_at} /> },
                { name: "price", head: "Credits", align: "right", cell: (row) => <Amount value={row.price} /> },
              ]}
              empty={
                <Empty title="Nothing is held.">
                  A job's price is held while it waits and runs, and settled in the moment it ends.
                </Empty>
              }
            />
            <Pager next={holds.next_cursor} />
          </Panel>
        </>
      )}
    </Show>
  );
}

/** Bars, one for each age: an old hold is money that somebody misses. */
function Ages({ ages }: { ages: readonly HoldAge[] }) {
  const most = Math.max(1, ...ages.map((age) => age.credits));
  return (
    <ol class="credits-ages">
      {ages.map((age, index) => {
        const older = ages[index - 1]?.seconds ?? 0;
        const label = age.seconds === null ? `over ${span(older)}` : `up to ${span(age.seconds)}`;
        return (
          <li key={label}>
            <span>{label}</span>
            <meter max={most} value={age.credits} aria-label={`Held ${label}: ${age.credits} credits`} />
            <span class="right">
              <Amount value={age.credits} /> <span class="soft">in {plural(age.jobs, "job")}</span>
            </span>
          </li>
        );
      })}
    </ol>
  );
}
