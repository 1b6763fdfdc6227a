// Access: tenants, and the keys by which people and programs come in.

import { act, get, refusal, session } from "../api";
import { useLoaded } from "../live";
import { Ago, Badge, Button, Copy, Empty, Moment, Page, Panel, Show } from "../parts/basics";
import { ask, showSecret } from "../parts/dialogs";
import { whose } from "../parts/frame";
import { Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place } from "../router";
import type { KeyInfo, Keys, NewKey, TenantInfo, Tenants, Wallet, Wallets } from "../wire";
import { number } from "../words";

export function Access({ tenant }: { tenant?: string }) {
  const because = refusal("admin");
  const { query } = place.value;
  const asked = { ...(tenant ? { tenant } : whose()), cursor: query.get("keys") };
  const keys = useLoaded((signal) => get<Keys>("keys", asked, signal), [asked]);
  return (
    <Page
      title={tenant ?? "Access"}
      aside={tenant && <span class="soft">a tenant</span>}
      acts={
        <>
          {tenant && (
            <Link to="/" query={{ tenant }} class="button">
              Look at this tenant alone
            </Link>
          )}
          <Button tone="main" because={because} onClick={() => makeKey(tenant, keys.reload)}>
            Make a key
          </Button>
        </>
      }
    >
      {tenant ? <Accounts tenant={tenant} /> : <TenantList />}
      <Panel title="Keys" aside="of a secret only its digest is kept">
        <Show of={keys}>
          {(page) => (
            <>
              <KeyTable keys={page.data} marked={query.get("key")} because={because} reload={keys.reload} />
              <Pager next={page.next_cursor} name="keys" />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

// Tenants

function TenantList() {
  const cursor = place.value.query.get("cursor");
  const found = useLoaded((signal) => get<Tenants>("tenants", { cursor }, signal), [cursor]);
  const because = refusal("admin", { ofAll: true });
  return (
    <Panel
      title="Tenants"
      aside={
        <Button tone="small" because={because} onClick={() => makeTenant(found.reload)}>
          Make a tenant
        </Button>
      }
    >
      <Show of={found}>
        {(page) => (
          <>
            <Table<TenantInfo>
              label="Tenants"
              rows={page.data}
              keyOf={(row) => row.tenant}
              onOpen={(row) => go(`/access/${part(row.tenant)}`)}
              columns={[
                {
                  name: "tenant",
                  head: "Tenant",
                  cell: (row) => <Link to={`/access/${part(row.tenant)}`}>{row.tenant}</Link>,
                },
                { name: "since", head: "Since", cell: (row) => <Moment at={row.created_at} /> },
              ]}
              empty={
                <Empty title="No tenant yet.">
                  A tenant is a customer of yours: its jobs, wallets and webhooks are apart from all others.
                </Empty>
              }
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

function makeTenant(done: () => void): Promise<boolean> {
  return ask({
    title: "Make a tenant",
    text: "A tenant sees nothing of any other.",
    action: "Make it",
    fields: [
      { name: "tenant", label: "Name", required: true, hint: "Letters, digits and . _ - : it cannot be changed." },
    ],
    act: async ({ tenant }) => {
      await act("POST", "tenants", { tenant });
      toast(`The tenant ${tenant} is there.`);
      done();
    },
  });
}

function Accounts({ tenant }: { tenant: string }) {
  const cursor = place.value.query.get("cursor");
  const asked = { tenant, cursor };
  const found = useLoaded((signal) => get<Wallets>("wallets", asked, signal), [asked]);
  return (
    <Panel
      title="Accounts"
      aside={
        <Button tone="small" because={refusal("admin")} onClick={() => makeAccount(tenant, found.reload)}>
          Make an account
        </Button>
      }
    >
      <Show of={found}>
        {(page) => (
          <>
            <Table<Wallet>
              label="Accounts"
              rows={page.data}
              keyOf={(row) => row.account}
              onOpen={(row) => go(`/credits/${part(tenant)}/${part(row.account)}`)}
              columns={[
                {
                  name: "account",
                  head: "Account",
                  cell: (row) => <Link to={`/credits/${part(tenant)}/${part(row.account)}`}>{row.account}</Link>,
                },
                { name: "available", head: "Available", align: "right", cell: (row) => number(row.available) },
                { name: "held", head: "Held", align: "right", cell: (row) => number(row.held) },
                {
                  name: "limit",
                  head: "Active jobs",
                  align: "right",
                  cell: (row) => `${row.active}${row.active_max === null ? "" : ` of ${row.active_max}`}`,
                },
              ]}
              empty={<Empty title="No account yet.">The first grant or the first job makes one.</Empty>}
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

function makeAccount(tenant: string, done: () => void): Promise<boolean> {
  return ask({
    title: `Make an account of ${tenant}`,
    action: "Make it",
    fields: [
      { name: "account", label: "Name", required: true },
      {
        name: "active_max",
        label: "Active jobs at most",
        type: "number",
        min: 0,
        hint: "Leave it empty for no limit.",
      },
    ],
    act: async ({ account, active_max: limit }) => {
      await act("POST", `tenants/${part(tenant)}/accounts`, {
        account,
        ...(limit ? { active_max: Number(limit) } : {}),
      });
      toast(`The account ${account} is there.`);
      done();
    },
  });
}

// Keys

interface KeyTableProps {
  keys: readonly KeyInfo[];
  /** The one that was searched for. */
  marked: string | null;
  because: string | undefined;
  reload: () => void;
}

function KeyTable({ keys, marked, because, reload }: KeyTableProps) {
  return (
    <Table<KeyInfo>
      label="Keys"
      rows={keys}
      keyOf={(row) => row.id}
      toneOf={(row) => (row.id === marked ? "warn" : undefined)}
      columns={[
        {
          name: "name",
          head: "Key",
          cell: (row) => (
            <>
              {row.name ?? <span class="soft">without a name</span>}
              <br />
              <code class="soft">{row.hint}</code> <Copy text={row.id} what="id of the key" />
            </>
          ),
        },
        {
          name: "scope",
          head: "Scope",
          cell: (row) => <Badge tone={row.scope === "admin" ? "warn" : "quiet"}>{row.scope}</Badge>,
        },
        {
          name: "whose",
          head: "Whose",
          cell: (row) =>
            row.tenant ? (
              <>
                <Link to={`/access/${part(row.tenant)}`}>{row.tenant}</Link>
                {row.account && ` / ${row.account}`}
              </>
            ) : (
              "every tenant"
            ),
        },
        { name: "limit", head: "Requests/s", align: "right", hide: "medium", cell: (row) => row.rate_limit ?? "–" },
        { name: "used", head: "Last used", cell: (row) => <Ago at={row.last_used_at} /> },
        { name: "state", head: "State", cell: keyState },
        {
          name: "acts",
          head: "",
          cell: (row) =>
            row.revoked_at ? null : (
              <span class="acts">
                <Button tone="small" because={because} onClick={() => rotate(row, reload)}>
                  Rotate
                </Button>
                <Button tone="small" because={because} onClick={() => revoke(row, reload)}>
                  Revoke
                </Button>
              </span>
            ),
        },
      ]}
      empty={
        <Empty title="No key yet.">
          A key of scope client is for one account; viewer, operator and admin are for people.
        </Empty>
      }
    />
  );
}

function keyState(key: KeyInfo) {
  if (key.revoked_at)
    return (
      <Badge tone="bad" title={key.revoked_at}>
        revoked
      </Badge>
    );
  if (!key.expires_at) return <Badge tone="good">good</Badge>;
  const isOver = new Date(key.expires_at) <= new Date();
  return isOver ? (
    <Badge tone="quiet">expired</Badge>
  ) : (
    <Badge tone="info" title={key.expires_at}>
      until <Moment at={key.expires_at} />
    </Badge>
  );
}

const SCOPES = [
  { value: "client", label: "client: submits jobs for one account" },
  { value: "viewer", label: "viewer: sees everything, changes nothing" },
  { value: "operator", label: "operator: acts on jobs, queues, workers, webhooks" },
  { value: "admin", label: "admin: everything, money and keys too" },
  { value: "worker", label: "worker: lets workers join the fleet" },
];

function makeKey(tenant: string | undefined, done: () => void): Promise<boolean> {
  return ask({
    title: "Make a key",
    text: "Its secret is told once, right after this.",
    action: "Make it",
    fields: [
      { name: "scope", label: "Scope", type: "select", options: SCOPES, value: "client" },
      {
        name: "tenant",
        label: "Tenant",
        value: tenant ?? session.value?.tenant ?? "",
        hint: "Empty for every tenant; a client's key needs one.",
      },
      { name: "account", label: "Account", hint: "A client's key is for one account." },
      { name: "name", label: "Name", hint: "So that people know later what it was for." },
      { name: "expires_in", label: "Good for", placeholder: "90d", hint: "Such as 12h or 90d; empty for no end." },
      { name: "rate_limit", label: "Requests a second at most", type: "number", min: 1 },
    ],
    act: async (given) => {
      const filled = Object.fromEntries(Object.entries(given).filter(([, value]) => value.trim() !== ""));
      const { rate_limit: rate, ...rest } = filled;
      const made = await act<NewKey>("POST", "keys", { ...rest, ...(rate ? { rate_limit: Number(rate) } : {}) });
      done();
      setTimeout(() =>
        showSecret("The new key", "It is told this once. Put it where it is used, and nowhere else.", made.key),
      );
    },
  });
}

function rotate(key: KeyInfo, done: () => void): Promise<boolean> {
  return ask({
    title: `Rotate ${key.name ?? key.hint}?`,
    text: "A new key takes its place. The old one stays good for a while, so that nothing stops.",
    action: "Rotate",
    fields: [{ name: "overlap", label: "The old one stays good for", value: "24h", required: true }],
    act: async ({ overlap }) => {
      const made = await act<NewKey>("POST", `keys/${key.id}/rotate`, { overlap });
      done();
      setTimeout(() =>
        showSecret("The new key", "It is told this once. Put it in the place of the old one.", made.key),
      );
    },
  });
}

function revoke(key: KeyInfo, done: () => void): Promise<boolean> {
  return ask({
    title: `Revoke ${key.name ?? key.hint}?`,
    text: "At once and for good: whatever uses it is refused from now on. Sessions that were opened with it end.",
    action: "Revoke",
    tone: "bad",
    act: async () => {
      await act("DELETE", `keys/${key.id}`);
      toast("The key is revoked.");
      done();
    },
  });
}
