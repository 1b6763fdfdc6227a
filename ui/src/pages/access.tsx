// Access: tenants, accounts, and the keys that authenticate people and programs.

import { act, get, refusal, session } from "../api";
import { useLoaded } from "../live";
import { Ago, Badge, Button, Copy, Empty, Instant, Page, Panel, Show } from "../parts/basics";
import { ask, showSecret } from "../parts/dialogs";
import { chosenTenant } from "../parts/frame";
import { Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place } from "../router";
import type { KeyInfo, Keys, NewKey, TenantInfo, Tenants, Wallet, Wallets } from "../wire";
import { number } from "../words";

export function Access({ tenant }: { tenant?: string }) {
  const because = refusal("admin");
  const { query } = place.value;
  const asked = { ...(tenant ? { tenant } : chosenTenant()), cursor: query.get("keys") };
  const keys = useLoaded((signal) => get<Keys>("keys", asked, signal), [asked]);
  return (
    <Page
      title={tenant ?? "Access"}
      aside={tenant && <span class="soft">a tenant</span>}
      acts={
        <>
          {tenant && (
            <Link to="/" query={{ tenant }} class="button">
              Show only this tenant
            </Link>
          )}
          <Button tone="main" because={because} onClick={() => makeKey(tenant, keys.reload)}>
            Create key
          </Button>
        </>
      }
    >
      {tenant ? <Accounts tenant={tenant} /> : <TenantList />}
      <Panel title="Keys" aside="only a digest of each secret is stored">
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
          Create tenant
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
                { name: "since", head: "Created", cell: (row) => <Instant at={row.created_at} /> },
              ]}
              empty={
                <Empty title="No tenants yet.">
                  A tenant is one of your customers. Its jobs, wallets and webhooks are isolated from other tenants.
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
    title: "Create tenant",
    text: "Tenants cannot see each other's data.",
    action: "Create",
    fields: [
      {
        name: "tenant",
        label: "Name",
        required: true,
        hint: "Letters, digits, periods, underscores and hyphens. The name cannot be changed later.",
      },
    ],
    act: async ({ tenant }) => {
      await act("POST", "tenants", { tenant });
      toast(`Tenant ${tenant} created.`);
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
          Create account
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
              empty={<Empty title="No accounts yet.">The first grant or job creates an account.</Empty>}
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
    title: `Create an account for ${tenant}`,
    action: "Create",
    fields: [
      { name: "account", label: "Name", required: true },
      {
        name: "active_max",
        label: "Limit of active jobs",
        type: "number",
        min: 0,
        hint: "Leave empty for no limit.",
      },
    ],
    act: async ({ account, active_max: limit }) => {
      await act("POST", `tenants/${part(tenant)}/accounts`, {
        account,
        ...(limit ? { active_max: Number(limit) } : {}),
      });
      toast(`Account ${account} created.`);
      done();
    },
  });
}

// Keys

interface KeyTableProps {
  keys: readonly KeyInfo[];
  /** The id of the key that was searched for. */
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
              {row.name ?? <span class="soft">unnamed</span>}
              <br />
              <code class="soft">{row.hint}</code> <Copy text={row.id} what="key id" />
            </>
          ),
        },
        {
          name: "scope",
          head: "Scope",
          cell: (row) => <Badge tone={row.scope === "admin" ? "warn" : "quiet"}>{row.scope}</Badge>,
        },
        {
          name: "account",
          head: "Account",
          cell: (row) =>
            row.tenant ? (
              <>
                <Link to={`/access/${part(row.tenant)}`}>{row.tenant}</Link>
                {row.account && ` / ${row.account}`}
              </>
            ) : (
              "all tenants"
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
        <Empty title="No keys yet.">
          Keys of scope client belong to one account. Scopes viewer, operator and admin are for people.
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
  if (!key.expires_at) return <Badge tone="good">active</Badge>;
  const isOver = new Date(key.expires_at) <= new Date();
  return isOver ? (
    <Badge tone="quiet">expired</Badge>
  ) : (
    <Badge tone="info" title={key.expires_at}>
      until <Instant at={key.expires_at} />
    </Badge>
  );
}

const SCOPES = [
  { value: "client", label: "client: submit jobs for one account" },
  { value: "viewer", label: "viewer: read-only access" },
  { value: "operator", label: "operator: manage jobs, queues, workers and webhooks" },
  { value: "admin", label: "admin: full access, including credits and keys" },
  { value: "worker", label: "worker: register fleet workers" },
];

function makeKey(tenant: string | undefined, done: () => void): Promise<boolean> {
  return ask({
    title: "Create key",
    text: "The secret is shown only once, after the key is created.",
    action: "Create",
    fields: [
      { name: "scope", label: "Scope", type: "select", options: SCOPES, value: "client" },
      {
        name: "tenant",
        label: "Tenant",
        value: tenant ?? session.value?.tenant ?? "",
        hint: "Leave empty for all tenants. Required for scope client.",
      },
      { name: "account", label: "Account", hint: "Required for scope client." },
      { name: "name", label: "Name", hint: "Describes what the key is used for." },
      {
        name: "expires_in",
        label: "Valid for",
        placeholder: "90d",
        hint: "For example 12h or 90d. Leave empty for a key that does not expire.",
      },
      { name: "rate_limit", label: "Limit of requests per second", type: "number", min: 1 },
    ],
    act: async (given) => {
      const filled = Object.fromEntries(Object.entries(given).filter(([, value]) => value.trim() !== ""));
      const { rate_limit: rate, ...rest } = filled;
      const made = await act<NewKey>("POST", "keys", { ...rest, ...(rate ? { rate_limit: Number(rate) } : {}) });
      done();
      setTimeout(() => showSecret("New key", "The key is shown only once. Store it where it is used.", made.key));
    },
  });
}

function rotate(key: KeyInfo, done: () => void): Promise<boolean> {
  return ask({
    title: `Rotate ${key.name ?? key.hint}?`,
    text: "A new key is created. The old key stays valid for the overlap, so that clients can switch without interruption.",
    action: "Rotate",
    fields: [{ name: "overlap", label: "Overlap: how long the old key stays valid", value: "24h", required: true }],
    act: async ({ overlap }) => {
      const made = await act<NewKey>("POST", `keys/${key.id}/rotate`, { overlap });
      done();
      setTimeout(() => showSecret("New key", "The key is shown only once. Replace the old key with it.", made.key));
    },
  });
}

function revoke(key: KeyInfo, done: () => void): Promise<boolean> {
  return ask({
    title: `Revoke ${key.name ?? key.hint}?`,
    text: "Requests with this key are rejected from now on, and sessions opened with it end. This cannot be undone.",
    action: "Revoke",
    tone: "bad",
    act: async () => {
      await act("DELETE", `keys/${key.id}`);
      toast("Key revoked.");
      done();
    },
  });
}
